"""The Python programs of the documents, run against a simulation of S3."""

import json
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

ROOT = Path(__file__).parents[2]
BUCKET, KEY = "bucket", "account/17"


def programs(document):
    """Returns the names that each Python block of a document defines."""
    found, lines = [], None
    for line in (ROOT / document).read_text().splitlines():
        if line == "```python":
            lines = []
        elif line == "```" and lines is not None:
            names = {}
            exec(compile("\n".join(lines), document, "exec"), names)
            found.append(names)
            lines = None
        elif lines is not None:
            lines.append(line)
    return found


@pytest.fixture
def put_fenced():
    [program] = programs("docs/guides/fencing.md")
    return program["put_fenced"]


@pytest.fixture
def s3():
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
        client.create_bucket(Bucket=BUCKET)
        yield client


def stored(s3):
    return json.load(s3.get_object(Bucket=BUCKET, Key=KEY)["Body"])


def test_a_write_with_a_smaller_fence_is_refused(s3, put_fenced):
    assert put_fenced(s3, BUCKET, KEY, "first", 33)
    assert put_fenced(s3, BUCKET, KEY, "again", 33)
    assert put_fenced(s3, BUCKET, KEY, "newer", 34)
    assert not put_fenced(s3, BUCKET, KEY, "late", 33)
    assert stored(s3) == {"fence": 34, "value": "newer"}


class Overtaken:
    """A client of S3. Another holder writes between its first read and its write."""

    def __init__(self, s3, write):
        self.s3, self.write = s3, write

    def get_object(self, **request):
        try:
            return self.s3.get_object(**request)
        finally:
            if self.write:
                write, self.write = self.write, None
                write()

    def put_object(self, **request):
        return self.s3.put_object(**request)


@pytest.mark.parametrize("before", [None, 32])
@pytest.mark.parametrize("value", ["late", "newer"])
def test_a_write_is_refused_if_a_newer_holder_wrote_after_the_read(s3, put_fenced, before, value):
    if before is not None:
        assert put_fenced(s3, BUCKET, KEY, "newer", before)
    overtaken = Overtaken(s3, lambda: put_fenced(s3, BUCKET, KEY, "newer", 34))
    assert not put_fenced(overtaken, BUCKET, KEY, value, 33)
    assert stored(s3) == {"fence": 34, "value": "newer"}


def test_a_write_is_repeated_if_an_older_holder_wrote_after_the_read(s3, put_fenced):
    overtaken = Overtaken(s3, lambda: put_fenced(s3, BUCKET, KEY, "older", 33))
    assert put_fenced(overtaken, BUCKET, KEY, "newer", 34)
    assert stored(s3) == {"fence": 34, "value": "newer"}


def test_other_errors_are_raised(s3, put_fenced):
    with pytest.raises(ClientError, match="NoSuchBucket"):
        put_fenced(s3, "another", KEY, "value", 1)
