package locks

import (
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/logging"
)

// sdkV2 uses version 2 of the SDK, as v1 of Clever's package does.
type sdkV2 struct {
	api   *dynamodb.Client
	table string
}

// noWarning fails the test if the SDK warns, as it does of an answer without a checksum.
type noWarning struct{ t *testing.T }

func (own noWarning) Logf(level logging.Classification, format string, arguments ...any) {
	if level == logging.Warn {
		own.t.Errorf(format, arguments...)
	}
}

func dynamoV2(t *testing.T, table string) dynamo {
	t.Helper()
	api := dynamodb.New(dynamodb.Options{
		BaseEndpoint: aws.String("http://" + addresses["dynamodb"]),
		Region:       "us-west-1",
		Credentials:  credentials.NewStaticCredentialsProvider("WAYMAKERTESTKEY1", "a secret that nobody checks", ""),
		Logger:       noWarning{t},
	})
	return &sdkV2{api, table}
}

// succeeds returns false if the condition of a request does not hold. Every other error fails the test.
func (own *sdkV2) succeeds(t *testing.T, err error) bool {
	t.Helper()
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		return false
	}
	must(t, err)
	return true
}

func takeV2(t *testing.T, owner string) expression.Expression {
	free := expression.Name("key").AttributeNotExists()
	over := expression.Name("leasedUntil").LessThan(expression.Value(time.Now().UTC().Add(-grace)))
	ours := expression.Name("owner").Equal(expression.Value(owner))
	built, err := expression.NewBuilder().WithCondition(free.Or(over, ours)).Build()
	must(t, err)
	return built
}

func keepV2(t *testing.T, owner string) expression.Expression {
	ours := expression.Name("owner").Equal(expression.Value(owner))
	built, err := expression.NewBuilder().WithCondition(ours).Build()
	must(t, err)
	return built
}

func (own *sdkV2) put(t *testing.T, row row, condition expression.Expression) bool {
	t.Helper()
	item, err := attributevalue.MarshalMap(row)
	must(t, err)
	_, err = own.api.PutItem(ask(t), &dynamodb.PutItemInput{
		TableName:                 &own.table,
		Item:                      item,
		ConditionExpression:       condition.Condition(),
		ExpressionAttributeNames:  condition.Names(),
		ExpressionAttributeValues: condition.Values(),
	})
	return own.succeeds(t, err)
}

func (own *sdkV2) acquire(t *testing.T, row row) bool {
	t.Helper()
	return own.put(t, row, takeV2(t, row.Owner))
}

func (own *sdkV2) heartbeat(t *testing.T, row row) bool {
	t.Helper()
	return own.put(t, row, keepV2(t, row.Owner))
}

func (own *sdkV2) release(t *testing.T, key, owner string) bool {
	t.Helper()
	condition := takeV2(t, owner)
	_, err := own.api.DeleteItem(ask(t), &dynamodb.DeleteItemInput{
		TableName:                 &own.table,
		Key:                       own.key(key),
		ConditionExpression:       condition.Condition(),
		ExpressionAttributeNames:  condition.Names(),
		ExpressionAttributeValues: condition.Values(),
	})
	return own.succeeds(t, err)
}

func (own *sdkV2) key(key string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"key": &types.AttributeValueMemberS{Value: key}}
}

func (own *sdkV2) current(t *testing.T, key string) *row {
	t.Helper()
	answer, err := own.api.GetItem(ask(t), &dynamodb.GetItemInput{
		TableName:      &own.table,
		Key:            own.key(key),
		ConsistentRead: aws.Bool(true),
	})
	must(t, err)
	if answer.Item == nil {
		return nil
	}
	var found row
	must(t, attributevalue.UnmarshalMap(answer.Item, &found))
	return &found
}

func (own *sdkV2) createTable(t *testing.T) {
	t.Helper()
	_, err := own.api.CreateTable(ask(t), &dynamodb.CreateTableInput{
		TableName: &own.table,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("key"), AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema:   []types.KeySchemaElement{{AttributeName: aws.String("key"), KeyType: types.KeyTypeHash}},
		BillingMode: types.BillingModePayPerRequest,
	})
	must(t, err)
}

func (own *sdkV2) deleteTable(t *testing.T) {
	t.Helper()
	_, err := own.api.DeleteTable(ask(t), &dynamodb.DeleteTableInput{TableName: &own.table})
	must(t, err)
}

func (own *sdkV2) tableExists(t *testing.T) bool {
	t.Helper()
	_, err := own.api.DescribeTable(ask(t), &dynamodb.DescribeTableInput{TableName: &own.table})
	var missing *types.ResourceNotFoundException
	if errors.As(err, &missing) {
		return false
	}
	must(t, err)
	return true
}
