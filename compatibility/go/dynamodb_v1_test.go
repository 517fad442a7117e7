package locks

import (
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go/aws"
	"github.com/aws/aws-sdk-go/aws/credentials"
	"github.com/aws/aws-sdk-go/aws/session"
	"github.com/aws/aws-sdk-go/service/dynamodb"
	"github.com/aws/aws-sdk-go/service/dynamodb/dynamodbattribute"
	"github.com/aws/aws-sdk-go/service/dynamodb/expression"
)

// sdkV1 uses version 1 of the SDK, as v0.4 of Clever's package does.
type sdkV1 struct {
	api   *dynamodb.DynamoDB
	table string
}

func dynamoV1(t *testing.T, table string) dynamo {
	t.Helper()
	opened, err := session.NewSession(&aws.Config{
		Endpoint:    aws.String("http://" + addresses["dynamodb"]),
		Region:      aws.String("us-west-1"),
		Credentials: credentials.NewStaticCredentials("WAYMAKERTESTKEY1", "a secret that nobody checks", ""),
	})
	must(t, err)
	return &sdkV1{dynamodb.New(opened), table}
}

// succeeds returns false if the condition of a request does not hold. Every other error fails the test.
func (own *sdkV1) succeeds(t *testing.T, err error) bool {
	t.Helper()
	var failed *dynamodb.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		return false
	}
	must(t, err)
	return true
}

func takeV1(t *testing.T, owner string) expression.Expression {
	free := expression.Name("key").AttributeNotExists()
	over := expression.Name("leasedUntil").LessThan(expression.Value(time.Now().UTC().Add(-grace)))
	ours := expression.Name("owner").Equal(expression.Value(owner))
	built, err := expression.NewBuilder().WithCondition(free.Or(over, ours)).Build()
	must(t, err)
	return built
}

func keepV1(t *testing.T, owner string) expression.Expression {
	ours := expression.Name("owner").Equal(expression.Value(owner))
	built, err := expression.NewBuilder().WithCondition(ours).Build()
	must(t, err)
	return built
}

func (own *sdkV1) put(t *testing.T, row row, condition expression.Expression) bool {
	t.Helper()
	item, err := dynamodbattribute.MarshalMap(row)
	must(t, err)
	_, err = own.api.PutItemWithContext(ask(t), &dynamodb.PutItemInput{
		TableName:                 &own.table,
		Item:                      item,
		ConditionExpression:       condition.Condition(),
		ExpressionAttributeNames:  condition.Names(),
		ExpressionAttributeValues: condition.Values(),
	})
	return own.succeeds(t, err)
}

func (own *sdkV1) acquire(t *testing.T, row row) bool {
	t.Helper()
	return own.put(t, row, takeV1(t, row.Owner))
}

func (own *sdkV1) heartbeat(t *testing.T, row row) bool {
	t.Helper()
	return own.put(t, row, keepV1(t, row.Owner))
}

func (own *sdkV1) release(t *testing.T, key, owner string) bool {
	t.Helper()
	condition := takeV1(t, owner)
	_, err := own.api.DeleteItemWithContext(ask(t), &dynamodb.DeleteItemInput{
		TableName:                 &own.table,
		Key:                       own.key(key),
		ConditionExpression:       condition.Condition(),
		ExpressionAttributeNames:  condition.Names(),
		ExpressionAttributeValues: condition.Values(),
	})
	return own.succeeds(t, err)
}

func (own *sdkV1) key(key string) map[string]*dynamodb.AttributeValue {
	return map[string]*dynamodb.AttributeValue{"key": {S: &key}}
}

func (own *sdkV1) current(t *testing.T, key string) *row {
	t.Helper()
	answer, err := own.api.GetItemWithContext(ask(t), &dynamodb.GetItemInput{
		TableName:      &own.table,
		Key:            own.key(key),
		ConsistentRead: aws.Bool(true),
	})
	must(t, err)
	if answer.Item == nil {
		return nil
	}
	var found row
	must(t, dynamodbattribute.UnmarshalMap(answer.Item, &found))
	return &found
}

func (own *sdkV1) createTable(t *testing.T) {
	t.Helper()
	_, err := own.api.CreateTableWithContext(ask(t), &dynamodb.CreateTableInput{
		TableName:            &own.table,
		AttributeDefinitions: []*dynamodb.AttributeDefinition{{AttributeName: aws.String("key"), AttributeType: aws.String("S")}},
		KeySchema:            []*dynamodb.KeySchemaElement{{AttributeName: aws.String("key"), KeyType: aws.String("HASH")}},
		ProvisionedThroughput: &dynamodb.ProvisionedThroughput{
			ReadCapacityUnits: aws.Int64(10), WriteCapacityUnits: aws.Int64(10),
		},
	})
	must(t, err)
}

func (own *sdkV1) deleteTable(t *testing.T) {
	t.Helper()
	_, err := own.api.DeleteTableWithContext(ask(t), &dynamodb.DeleteTableInput{TableName: &own.table})
	must(t, err)
}

func (own *sdkV1) tableExists(t *testing.T) bool {
	t.Helper()
	_, err := own.api.DescribeTableWithContext(ask(t), &dynamodb.DescribeTableInput{TableName: &own.table})
	var missing *dynamodb.ResourceNotFoundException
	if errors.As(err, &missing) {
		return false
	}
	must(t, err)
	return true
}
