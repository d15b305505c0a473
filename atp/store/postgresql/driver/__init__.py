"""Sessions, cursors and statements of the driver."""
