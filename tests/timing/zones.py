"""Time zones whose clocks are changed in different ways."""

ZONES = (
    "Africa/Cairo",  # at midnight, the gap is the first hour of a Friday
    "Africa/Casablanca",  # for Ramadan, whose dates move
    "America/Havana",  # at midnight and at one
    "America/New_York",
    "America/Nuuk",  # the gap is the last hour of a Saturday
    "America/Santiago",  # at midnight, southern hemisphere
    "America/St_Johns",  # UTC-03:30
    "Antarctica/Troll",  # by two hours
    "Asia/Beirut",  # at midnight
    "Atlantic/Azores",  # at midnight and at one, the gap is the first hour of a Sunday
    "Australia/Lord_Howe",  # by half an hour, UTC+10:30
    "Europe/Dublin",  # standard time is in summer
    "Europe/Vienna",
    "Pacific/Chatham",  # UTC+12:45, at 02:45
)
