"""The cases of guards through Flask."""

import flask
from guard_cases import OpenResponse, Service, cases_of
from polylimit import flask as of_flask


class Flask(Service):
    """An application and its view: the outermost guard is the application's."""

    is_application = True

    @staticmethod
    def header(request, name):
        return request.headers.get(name)

    @staticmethod
    def teapot(status, body):
        return body, status

    def make(self, guards):
        app = flask.Flask(__name__)
        app.logger.disabled = True

        def view():
            headers = {name.lower(): value for name, value in flask.request.headers}
            body = ["view", "more"] if "x-open" in headers else self.body(headers)
            body = body if isinstance(body, str) else iter(body)
            return flask.Response(body, self.handle(headers), self.fields(headers))

        if self.is_application:
            of_flask.RateLimit(app, **guards.pop(0))
        for options in reversed(guards):
            view = of_flask.limit(**options)(view)
        app.add_url_rule("/", "view", view, methods=["GET", "POST", "DELETE"])
        self.client = app.test_client(use_cookies=False)

    def send(self, method, headers):
        with self.client.open("/", method=method, headers=headers) as response:
            return response.status_code, response.headers, response.text

    def open(self, method, headers):
        response = self.client.open("/", method=method, headers=headers)
        return response.status_code, response.headers, OpenResponse(response, response.get_data)


class FlaskViews(Flask):
    """All guards are the view's."""

    is_application = False


test_case = cases_of(Flask, FlaskViews)
