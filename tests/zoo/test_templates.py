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


def _grown(first: str, more: str) -> str:
    """A template that makes something larger sixty times."""
    return (
        f"{{% set ns = namespace(x={first}) %}}{{% for i in range(60) %}}"
        f"{{% set ns.x = {more} %}}{{% endfor %}}"
    )


BOMBS = [
    "{% for a in range(9**5) %}{% for b in range(9**5) %}{% endfor %}{% endfor %}",
    "{% set r = range(90000) %}{% for a in r %}{{ r | sum }}{% endfor %}",
    "{% for a in range(99999) if a | string | length > 9 %}{% endfor %}" * 99,
    _grown("'a'", "ns.x + ns.x"),
    _grown("'a'", "ns.x ~ ns.x"),
    _grown("[1]", "[ns.x, ns.x]") + "{{ ns.x }}",
    _grown("[1]", "[ns.x, ns.x]") + "{{ ns.x | tojson | length }}",
    "{{ 'a' * 10**10 }}",
    "{{ [0] * 10**10 }}",
    "{{ (10 ** 9) ** (10 ** 9) }}",
    "{{ 'a'.ljust(10**10) }}",
    "{{ 'a' | center(10**10) }}",
    "{{ [1] | tojson(indent=10**10) }}",
    "{{ '%9999999999d' % 1 }}",
    "{{ '%9999999999d' | format(1) }}",
    "{{ '{:9999999999}'.format(1) }}",
    "{{ '{:{}}'.format(1, 9999999999) }}",
    "{% set x = 'a' * 10**6 %}{{ x.replace('a', x) }}",
    "{% set x = 'a' * 10**6 %}{{ x | replace('a', x) }}",
    "{% set x = 'a' * 10**6 %}{{ x.join(x) }}",
    "{% set x = 'a' * 10**6 %}{{ x | join(x) }}",
    "{% set x = 'a' * 10**6 %}{% for i in range(99) %}{{ x }}{% endfor %}",
    "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(90) }}",
    "{% for x in [[[]]] recursive %}{{ loop([[[]]]) }}{{ loop([[[]]]) }}{% endfor %}",
    "{{ lipsum(n=10**9) }}",
]


@pytest.mark.parametrize("template", BOMBS)
def test_templates_end_soon_and_stay_small(template: str) -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_SELF)
    with pytest.raises(TemplateError, match=r"steps|text|huge|wide|asks|counts|recursion"):
        render(template, ASK)
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_maxrss - before.ru_maxrss < 500_000  # KiB
    assert after.ru_utime - before.ru_utime < 60


def test_a_long_chat_is_no_bomb() -> None:
    template = (
        "{% for m in messages %}{% if loop.index0 == messages | length - 1 %}last {% endif %}"
        "{% set rest = messages | selectattr('role', 'equalto', 'user') | list %}"
        "{{ m.role ~ ': ' + m.content | trim ~ rest | length }}{% if m.content is string %}"
        "{{ '%05d' % loop.index }}{{ '{:>4}'.format(1) }}{% endif %}\n{% endfor %}"
    )
    chat = [{"role": "user", "content": "word " * 400} for _ in range(500)]
    assert render(template, chat).count("user: word") == 500
