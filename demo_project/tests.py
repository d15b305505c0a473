"""Tests of the demo with ATP's testing kit. Run them with ``manage.py test demo_project``."""

from io import BytesIO

from django.test import TestCase
from PIL import Image

from atp import Graph, queue, result
from atp.testing import QueueMixin

from . import tasks


class TerrainTests(QueueMixin, TestCase):
    def test_a_hillshade_is_a_picture(self):
        tasks.hillshade.enqueue(azimuth=315)
        self.atp.assert_enqueued(tasks.hillshade, azimuth=315, altitude=45.0)
        [run] = self.atp.drain()
        with Image.open(BytesIO(run.response)) as picture:
            self.assertEqual(picture.width, tasks.PICTURE_WIDTH)
        self.assertEqual(run.instance.progress, 1.0)

    def test_statistics_are_the_same_however_often_they_run(self):
        tasks.statistics.enqueue(bins=5)
        _, run = self.atp.drain(twice=True)
        self.assertEqual(len(run.response["histogram"]["counts"]), 5)
        self.assertEqual(run.attempt, 2)

    def test_the_flow_refuses_an_odd_detail(self):
        tasks.flow.enqueue(detail=3)
        with self.assertRaisesMessage(ValueError, "must be an even number"):
            self.atp.drain()

    def test_a_busy_service_is_asked_three_times(self):
        tasks.busy_at_first.enqueue()
        runs = self.atp.drain(retries=True)
        self.assertEqual([run.state for run in runs], ["ACCEPTED", "ACCEPTED", "FINISHED"])
        self.assertEqual(runs[-1].response, "served on call 3")

    def test_a_slot_tells_how_late_it_is(self):
        queue.create_schedule("of-a-test", tasks.on_time.identifier, every=60, overlap="skip")
        self.atp.later(minutes=3, schedules=["of-a-test"])
        runs = self.atp.drain(tasks.on_time)
        # The other slots were skipped, because the first slot's Instance had not ended.
        self.assertEqual([run.state for run in runs], ["FINISHED"])

    def test_a_report_comes_after_what_it_is_about(self):
        with Graph("of the demo") as graph:
            numbers = graph.add(tasks.statistics)
            mosaic = graph.add(
                tasks.mosaic, name="mosaic", inputs={"parts": [], "tiles": []}, after=numbers
            )
            graph.add(
                tasks.report, numbers=result(numbers), after=[numbers, mosaic], on_failure="run"
            )
        runs = {run.type: run for run in self.atp.drain(raises=False)}
        self.assertEqual(runs["terrain.mosaic"].state, "FAILED")
        self.assertIn("Mosaic: FAILED", runs["terrain.report"].response)
