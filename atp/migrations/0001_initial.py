# All tables, for all databases.

import atp.fields
import atp.fields
import atp.fields
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Type",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("identifier", models.CharField(max_length=200, unique=True)),
                (
                    "handler",
                    models.CharField(
                        help_text="For display: a daemon runs the function that its own code declares.",
                        max_length=255,
                    ),
                ),
                (
                    "timeout",
                    models.DurationField(
                        help_text="A running attempt is killed after this.", null=True
                    ),
                ),
                (
                    "max_restarts",
                    models.PositiveIntegerField(
                        help_text="Attempts that may be lost while running."
                    ),
                ),
                (
                    "max_retries",
                    models.PositiveIntegerField(help_text="Attempts that may raise and be retried."),
                ),
                ("backoff", models.DurationField(help_text="Delay before the first retry.")),
                ("backoff_max", models.DurationField(help_text="Longest delay before a retry.")),
                (
                    "retention",
                    models.DurationField(
                        help_text="Terminal Instances are kept this long.", null=True
                    ),
                ),
                ("serializer", models.CharField(default="json", max_length=16)),
                (
                    "registered",
                    atp.fields.InstantField(
                        help_text="When the parameters were last changed."
                    ),
                ),
                (
                    "late_writes",
                    models.PositiveIntegerField(
                        db_default=0,
                        help_text="Results refused, because their Task had been taken away.",
                    ),
                ),
                (
                    "max_memory",
                    models.PositiveBigIntegerField(
                        help_text="In bytes; an attempt is killed when its processes take more.",
                        null=True,
                    ),
                ),
            ],
            options={
                "ordering": ["identifier"],
            },
        ),
        migrations.CreateModel(
            name="Instance",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "uuid",
                    models.UUIDField(default=atp.fields.uuid7, editable=False, unique=True),
                ),
                (
                    "identifier",
                    models.CharField(
                        help_text="The caller's idempotency key.", max_length=200, null=True
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("ACCEPTED", "accepted"),
                            ("SCHEDULED", "scheduled"),
                            ("RUNNING", "running"),
                            ("PAUSED", "paused"),
                            ("FINISHED", "finished"),
                            ("FAILED", "failed"),
                        ],
                        max_length=9,
                    ),
                ),
                (
                    "reason",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("ERROR", "the handler raised and its retries are used up"),
                            ("FATAL", "the handler raised an error that no retry can mend"),
                            ("STALE", "its attempts were lost more often than allowed"),
                            ("CANCELLED", "somebody cancelled it"),
                            ("DROPPED", "a gate dropped it"),
                            ("MISSED", "not started before its start_before"),
                            ("UPSTREAM", "a node that it waited for has FAILED"),
                        ],
                        default="",
                        max_length=9,
                    ),
                ),
                ("collection", models.CharField(blank=True, default="", max_length=200)),
                ("priority", models.SmallIntegerField(default=0)),
                ("attempt", models.IntegerField(default=0, help_text="Number of claims so far, for fencing.")),
                (
                    "restarts",
                    models.IntegerField(default=0, help_text="Attempts lost while running."),
                ),
                ("retries", models.IntegerField(default=0, help_text="Attempts that raised.")),
                ("lost", models.IntegerField(default=0, help_text="Attempts lost in all.")),
                (
                    "progress",
                    models.FloatField(help_text="From 0 to 1; null when unknown.", null=True),
                ),
                ("progress_message", models.CharField(blank=True, default="", max_length=200)),
                ("start_before", atp.fields.InstantField(null=True)),
                ("created_by", models.CharField(blank=True, default="", max_length=200)),
                ("created", atp.fields.InstantField()),
                (
                    "started",
                    atp.fields.InstantField(
                        help_text="When the last attempt started.", null=True
                    ),
                ),
                ("finished", atp.fields.InstantField(null=True)),
                (
                    "type",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="instances",
                        to="atp.type",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        models.F("type"),
                        models.OrderBy(models.F("id"), descending=True),
                        name="atp_instance_of_type",
                    ),
                    models.Index(
                        condition=models.Q(("finished__isnull", False)),
                        fields=["type", "finished"],
                        name="atp_instance_terminal",
                    ),
                    models.Index(
                        condition=models.Q(("finished__isnull", False), ("reason", "")),
                        fields=["id", "type", "collection"],
                        name="atp_instance_newest_finished",
                    ),
                    models.Index(
                        condition=models.Q(("finished__isnull", False), ("reason__gt", "")),
                        fields=["id", "reason", "type", "collection"],
                        name="atp_instance_failed",
                    ),
                    models.Index(
                        condition=models.Q(("finished__isnull", False), ("reason__gt", "")),
                        fields=["type", "id"],
                        name="atp_instance_failed_of_type",
                    ),
                    models.Index(
                        condition=models.Q(("collection__gt", "")),
                        fields=["collection", "id", "type"],
                        name="atp_instance_collection",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("identifier__isnull", False)),
                        fields=("type", "identifier"),
                        name="atp_instance_identifier",
                    ),
                    atp.fields.CheckByDomain(
                        condition=models.Q(
                            models.Q(
                                models.Q(
                                    ("reason", ""),
                                    (
                                        "state__in",
                                        ["ACCEPTED", "SCHEDULED", "RUNNING", "PAUSED", "FINISHED"],
                                    ),
                                ),
                                models.Q(
                                    (
                                        "reason__in",
                                        [
                                            "ERROR",
                                            "FATAL",
                                            "STALE",
                                            "CANCELLED",
                                            "DROPPED",
                                            "MISSED",
                                            "UPSTREAM",
                                        ],
                                    ),
                                    ("state", "FAILED"),
                                ),
                                _connector="OR",
                            ),
                            models.Q(
                                models.Q(
                                    models.Q(("state__in", ["FAILED", "FINISHED"])),
                                    ("finished__isnull", False),
                                ),
                                models.Q(
                                    models.Q(("state__in", ["FAILED", "FINISHED"]), _negated=True),
                                    ("finished__isnull", True),
                                ),
                                _connector="OR",
                            ),
                            ("priority__gte", -100),
                            ("priority__lte", 100),
                            ("attempt__gte", 0),
                            ("lost__gte", 0),
                            ("restarts__gte", 0),
                            ("retries__gte", 0),
                        ),
                        name="atp_instance_valid",
                    ),
                ],
                "permissions": [("operate", "Can operate: enqueue, redrive, release")],
            },
        ),
        migrations.CreateModel(
            name="Inputs",
            fields=[
                (
                    "instance",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        serialize=False,
                        to="atp.instance",
                    ),
                ),
                ("format", models.CharField(default="json", max_length=8)),
                ("data", models.TextField()),
            ],
            options={
                "verbose_name_plural": "inputs",
            },
        ),
        migrations.CreateModel(
            name="Response",
            fields=[
                (
                    "instance",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="response",
                        serialize=False,
                        to="atp.instance",
                    ),
                ),
                ("content_type", models.CharField(blank=True, default="", max_length=127)),
                ("data", models.BinaryField(null=True)),
                ("file", models.CharField(blank=True, default="", max_length=255)),
                (
                    "size",
                    models.PositiveBigIntegerField(default=0, help_text="Bytes of the output."),
                ),
                ("files", models.JSONField(default=list)),
            ],
        ),
        migrations.CreateModel(
            name="LogRecord",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("subject", models.CharField(blank=True, default="", max_length=255)),
                ("time", atp.fields.InstantField()),
                ("kind", models.CharField(max_length=16)),
                (
                    "state",
                    models.CharField(
                        blank=True, default="", help_text="The state after the event.", max_length=9
                    ),
                ),
                ("attempt", models.IntegerField(null=True)),
                ("level", models.SmallIntegerField(help_text="As in the logging module.")),
                ("who", models.CharField(blank=True, default="", max_length=200)),
                ("message", models.TextField(blank=True, default="")),
                (
                    "detail",
                    models.CharField(blank=True, db_default="", default="", max_length=64),
                ),
                (
                    "instance",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="atp.instance",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("instance__isnull", True)),
                        fields=["subject"],
                        name="atp_log_subject",
                    ),
                    models.Index(fields=["instance", "id"], name="atp_log_of_instance"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Daemon",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("uuid", models.UUIDField(unique=True)),
                ("host", models.CharField(max_length=255)),
                ("pid", models.PositiveIntegerField()),
                ("version", models.CharField(max_length=32)),
                (
                    "types",
                    models.JSONField(default=list, help_text="Identifiers of the Types it serves."),
                ),
                (
                    "workers",
                    models.JSONField(
                        default=list, help_text="For each worker: pid, Instance, start."
                    ),
                ),
                ("lock", models.CharField(blank=True, default="", max_length=255)),
                ("lease_until", atp.fields.InstantField()),
                ("idle", models.BooleanField(default=False)),
                (
                    "request",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="The order that it has been given: quiet or stop.",
                        max_length=16,
                    ),
                ),
                ("started", atp.fields.InstantField()),
                ("seen", atp.fields.InstantField()),
                (
                    "mode",
                    models.CharField(
                        choices=[
                            ("running", "claims what it serves"),
                            ("quiet", "claims nothing more, and goes on with what it runs"),
                            ("stopping", "claims nothing more, and ends"),
                        ],
                        db_default="running",
                        default="running",
                        max_length=8,
                    ),
                ),
                (
                    "channel",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="The channel for Tasks that are handed to the daemon.",
                        max_length=63,
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="SpareLease",
            fields=[
                (
                    "daemon",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="spare_lease",
                        serialize=False,
                        to="atp.daemon",
                    ),
                ),
                ("until", atp.fields.InstantField()),
            ],
        ),
        migrations.CreateModel(
            name="Task",
            fields=[
                (
                    "instance",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        serialize=False,
                        to="atp.instance",
                    ),
                ),
                ("collection", models.CharField(blank=True, default="", max_length=200)),
                ("priority", models.SmallIntegerField(default=0)),
                ("due_at", atp.fields.InstantField()),
                ("start_before", atp.fields.InstantField(null=True)),
                ("attempt", models.IntegerField(default=0)),
                ("request", models.CharField(blank=True, default="", max_length=16)),
                (
                    "daemon",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="tasks",
                        to="atp.daemon",
                    ),
                ),
                (
                    "type",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        to="atp.type",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(
                            ("daemon__isnull", True), ("start_before__isnull", False)
                        ),
                        fields=["start_before"],
                        name="atp_task_missed",
                    ),
                    models.Index(
                        models.F("type"),
                        models.F("collection"),
                        models.OrderBy(models.F("priority"), descending=True),
                        models.F("due_at"),
                        models.F("instance"),
                        condition=models.Q(("daemon__isnull", True)),
                        name="atp_task_claim",
                    ),
                    models.Index(
                        condition=models.Q(("daemon__isnull", False)),
                        fields=["daemon", "type", "collection"],
                        name="atp_task_held",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Gate",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("subject", models.CharField(max_length=408, unique=True)),
                ("collection", models.CharField(max_length=200, null=True)),
                (
                    "mode",
                    models.CharField(choices=[("hold", "hold"), ("drop", "drop")], max_length=4),
                ),
                ("reason", models.CharField(blank=True, default="", max_length=200)),
                ("who", models.CharField(blank=True, default="", max_length=200)),
                ("since", atp.fields.InstantField()),
                (
                    "until",
                    atp.fields.InstantField(help_text="When the gate opens by itself.", null=True),
                ),
                (
                    "type",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="atp.type",
                    ),
                ),
            ],
            options={
                "ordering": ["subject"],
            },
        ),
        migrations.CreateModel(
            name="Limit",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("subject", models.CharField(max_length=408, unique=True)),
                ("collection", models.CharField(max_length=200, null=True)),
                (
                    "max_running",
                    models.PositiveIntegerField(help_text="Tasks that may be claimed at a time.", null=True),
                ),
                (
                    "rate",
                    models.CharField(
                        blank=True, default="", help_text='Tasks that may start in a time, as "100/m".', max_length=32
                    ),
                ),
                (
                    "per_second",
                    models.FloatField(help_text="The rate in tasks a second.", null=True),
                ),
                (
                    "burst",
                    models.PositiveIntegerField(default=1, help_text="Tasks that may start at once after a pause."),
                ),
                ("weight", models.FloatField(default=1.0, help_text="The share of the Type relative to other Types.")),
                ("tokens", models.FloatField(default=0.0)),
                ("refilled", atp.fields.InstantField(null=True)),
                ("is_set", models.BooleanField(default=False, help_text="Whether an operator has set the limits.")),
                ("who", models.CharField(blank=True, default="", max_length=200)),
                ("since", atp.fields.InstantField()),
                (
                    "type",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="limits",
                        to="atp.type",
                    ),
                ),
            ],
            options={
                "ordering": ["subject"],
            },
        ),
    ]
