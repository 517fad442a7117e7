"""Clever's lock over boto3: the requests of the Go package, without its Go."""

from datetime import datetime, timedelta, timezone

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

GRACE = timedelta(seconds=5)
FORGET = timedelta(hours=48)
TAKE = "(attribute_not_exists (#0)) OR (#1 < :0) OR (#2 = :1)"
KEEP = "#0 = :0"
NOBODY = {"aws_access_key_id": "WAYMAKERTESTKEY1", "aws_secret_access_key": "a secret that nobody checks"}


def now():
    return datetime.now(timezone.utc)


def text(instant):
    """Writes an instant as Go does: RFC 3339, without zeros at the end of the fraction."""
    return instant.strftime("%Y-%m-%dT%H:%M:%S.%f").rstrip("0").rstrip(".") + "Z"


def connect(address, region="us-west-1", credentials=NOBODY):
    """Returns a client that tries each request once."""
    config = Config(retries={"total_max_attempts": 1}, connect_timeout=60, read_timeout=60)
    endpoint = f"http://{address}"
    return boto3.client("dynamodb", region_name=region, endpoint_url=endpoint, config=config, **credentials)


def create_table(client, table):
    return client.create_table(
        TableName=table,
        AttributeDefinitions=[{"AttributeName": "key", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )


def error_of(action, *arguments, **options):
    """Runs an action that must fail, and returns the name of its error."""
    try:
        action(*arguments, **options)
    except ClientError as error:
        return error.response["Error"]["Code"]
    raise AssertionError("the request succeeded")


class Locker:
    """The methods of the package for one owner of locks in one table. A lock that another owner has makes them return False."""

    def __init__(self, client, table, owner):
        self.client, self.table, self.owner = client, table, owner

    def row(self, key, lease):
        end = now() + lease
        texts = {"key": key, "owner": self.owner, "leasedUntil": text(end), "createdAt": text(now()), "ttl": text(end + FORGET)}
        return {name: {"S": value} for name, value in texts.items()}

    def _take(self):
        return {
            "ConditionExpression": TAKE,
            "ExpressionAttributeNames": {"#0": "key", "#1": "leasedUntil", "#2": "owner"},
            "ExpressionAttributeValues": {":0": {"S": text(now() - GRACE)}, ":1": {"S": self.owner}},
        }

    def _keep(self):
        return {
            "ConditionExpression": KEEP,
            "ExpressionAttributeNames": {"#0": "owner"},
            "ExpressionAttributeValues": {":0": {"S": self.owner}},
        }

    def _succeeds(self, action, **request):
        try:
            action(TableName=self.table, **request)
        except self.client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def acquire(self, key, lease=timedelta(minutes=5)):
        return self._succeeds(self.client.put_item, Item=self.row(key, lease), **self._take())

    def heartbeat(self, key, lease=timedelta(minutes=5)):
        return self._succeeds(self.client.put_item, Item=self.row(key, lease), **self._keep())

    def release(self, key):
        return self._succeeds(self.client.delete_item, Key={"key": {"S": key}}, **self._take())

    def current(self, key):
        """Returns the row of a key, or None."""
        request = {"TableName": self.table, "Key": {"key": {"S": key}}, "ConsistentRead": True}
        row = self.client.get_item(**request).get("Item")
        return row and {name: value["S"] for name, value in row.items()}
