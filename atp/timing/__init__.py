"""When a schedule runs: cron expressions, intervals, time zones. No database, no clock."""
