"""Chat templates: settings and helpers that templates expect, and what they may not do."""

from __future__ import annotations

import contextlib

import pytest

from bireme.core.errors import InvalidArgument
from bireme.zoo.templates import TemplateError, render

ASK = [{"role": "user", "content": "Hi"}]


def test_blocks_are_trimmed_as_templates_expect() -> None:
    template = (
        "{% for m in messages %}\n    {% if true %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}"
    )
    assert render(template, ASK) == "Hi\n"


def test_tojson_escapes_no_html_and_keeps_letters() -> None:
    tools = [{"name": "f", "text": "<b>'é'</b>"}]
    found = render("{{ tools | tojson }}", ASK, tools=tools)
    assert found == '[{"name": "f", "text": "<b>\'é\'</b>"}]'
    assert render("{{ tools[0] | tojson(indent=1) }}", ASK, tools=tools).startswith('{\n "name"')


def test_loop_controls_and_generation_blocks() -> None:
    template = (
        "{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}"
        "{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    )
    assert render(template, ASK * 5) == "HiHi"


def test_a_template_can_refuse() -> None:
    with pytest.raises(TemplateError, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}", ASK)


def test_variables_and_the_prompt_for_an_answer() -> None:
    template = "{{ bos_token }}{{ thinking }}{% if add_generation_prompt %}A:{% endif %}"
    assert (
        render(template, ASK, add_generation_prompt=True, bos_token="<s>", thinking=1) == "<s>1A:"
    )
    assert len(render("{{ strftime_now('%Y') }}", ASK)) == 4


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ messages.__class__.__base__.__subclasses__() }}",
        "{% for x in range(10**9) %}{% endfor %}",
        "{{ unknown.attribute }}",
        "{% if %}",
    ],
)
def test_a_hostile_template_gets_an_error_or_nothing(template: str) -> None:
    with contextlib.suppress(TemplateError):
        assert render(template, ASK) == ""


def test_messages_are_plain_data() -> None:
    with pytest.raises(InvalidArgument, match="object"):
        render("{{ messages }}", [{"role": "user", "content": object()}])
    with pytest.raises(InvalidArgument, match="role"):
        render("", [{"content": "x"}])
