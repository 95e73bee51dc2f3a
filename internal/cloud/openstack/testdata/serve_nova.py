# SPDX-License-Identifier: Apache-2.0
"""Serves the compute API of a real nova on a loopback port until it is killed.

Its API, conductor, scheduler, placement and compute service run in this process, as nova's own functional tests have them: with the fake
virtualization driver, a database in memory and doubles of the image, network and volume services. Whoever calls is an administrator of the
project that is the only argument.
"""

import os
import sys

for variable in ('OS_STDOUT_CAPTURE', 'OS_STDERR_CAPTURE', 'OS_TEST_TIMEOUT'):
    os.environ.setdefault(variable, '0')

import nova.monkey_patch  # noqa: E402,F401  Before everything that waits.

import unittest  # noqa: E402

import eventlet  # noqa: E402
from eventlet import wsgi  # noqa: E402
from nova.tests.functional import integrated_helpers  # noqa: E402


class ServedNova(integrated_helpers._IntegratedTestBase):
    ADMIN_API = True
    CAST_AS_CALL = False  # The API answers before a server has stopped, as it does with a real queue.

    def _setup_services(self):
        self.flags(compute_driver='fake.FakeDriver')  # The default has room for eight servers.
        super()._setup_services()

    def setUp(self):
        super().setUp()
        self.flags(instances=-1, cores=-1, ram=-1, group='quota')

    def runTest(self):
        app = self.api_fixture.app()

        def as_administrator(environ, start_response):
            environ.update(HTTP_X_AUTH_USER='admin', HTTP_X_AUTH_PROJECT_ID=sys.argv[1], HTTP_X_ROLES='reader,member,admin')
            return app(environ, start_response)

        listener = eventlet.listen(('127.0.0.1', 0))
        print('SERVING %d' % listener.getsockname()[1], flush=True)
        wsgi.server(listener, as_administrator, log_output=False)


if __name__ == '__main__':
    sys.exit(not unittest.TextTestRunner(verbosity=0).run(ServedNova()).wasSuccessful())
