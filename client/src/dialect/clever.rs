//! Clever's `lock`, which kept its locks in DynamoDB.
