"""EOxServer's own tests on ATP's backend, and the site of the tests of that backend."""
