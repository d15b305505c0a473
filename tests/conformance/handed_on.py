"""What a worker logs, handed on to the process of the tests."""

import json
import logging


class Writer(logging.FileHandler):
    """Writes each record to a file, as a line of JSON."""

    def format(self, record):
        text = logging.Formatter().formatException(record.exc_info) if record.exc_info else None
        return json.dumps(
            {
                "name": record.name,
                "levelno": record.levelno,
                "levelname": record.levelname,
                "msg": record.getMessage(),
                "exc_text": text,
            }
        )


def log_again(path):
    """Log the records of a file in this process."""
    for line in path.read_text().splitlines():
        record = logging.makeLogRecord(json.loads(line))
        logger = logging.getLogger(record.name)
        if logger.isEnabledFor(record.levelno):
            logger.handle(record)
