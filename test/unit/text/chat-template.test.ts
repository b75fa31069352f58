import { readFileSync } from 'node:fs';
import { afterAll, describe, expect, it } from 'vitest';
import { PagodaError } from '../../../src/errors.ts';
import { ChatTemplate } from '../../../src/text/chat-template.ts';
import { detectContentFormat } from '../../../src/text/find-chat-template.ts';
import { templateGlobals } from '../../../src/text/template-globals.ts';
import { render } from '../../../src/text/template-interpreter.ts';
import { parseTemplate } from '../../../src/text/template-syntax.ts';
import { toValue } from '../../../src/text/template-values.ts';
import { noShared, sharedPath } from '../../shared-data.ts';

const open: ChatTemplate[] = [];
afterAll(() => Promise.all(open.map((template) => template.close())));

const FIXED_TIME = new Date(2026, 0, 2, 3, 4, 5).getTime();
/** Tests of meaning do not race a clock: the machine may be busy. */
const PATIENT = { deadlineMs: 60_000, loadDeadlineMs: 60_000, fixedTime: FIXED_TIME };

async function create(source: string, options: object = {}): Promise<ChatTemplate> {
  const template = await ChatTemplate.create(source, { bosToken: '<s>', eosToken: '</s>', ...PATIENT, ...options });
  open.push(template);
  return template;
}

/** The text, or the error's message after `! `. */
async function outcome(source: string, input: Partial<Parameters<ChatTemplate['render']>[0]> = {}): Promise<string> {
  try {
    const template = await create(source);
    return await template.render({ messages: [], addGenerationPrompt: true, ...input });
  } catch (error) {
    expect(error).toBeInstanceOf(PagodaError);
    expect((error as PagodaError).code).toBe('template_error');
    return `! ${(error as PagodaError).message}`;
  }
}

/** Features that are missing, each with its reason. The test fails when one of them begins to work. */
const KNOWN_GAPS = new Map([
  [
    "{{ 'é<>&\\'\"\\\\/\\u2028\\t'|tojson }} {{ 'é'|tojson(ensure_ascii=true) }} {{ [1.0, 1e20, 0.1, -0.0, 123456789012345678]|tojson }}",
    'integers beyond 2^53 lose their last digits',
  ],
]);

/** The same as a render in the worker, without a thread for each of 67 templates. */
async function renderOnce(source: string, input: { messages: object[] }): Promise<string> {
  try {
    const globals = templateGlobals(() => new Date(FIXED_TIME));
    const variables = {
      tools: null,
      documents: null,
      add_generation_prompt: true,
      bos_token: '<s>',
      eos_token: '</s>',
      ...input,
    };
    for (const [name, value] of Object.entries(variables)) globals.set(name, toValue(value));
    return render(parseTemplate(source), globals);
  } catch (error) {
    return `! ${(error as Error).message}`;
  }
}

interface Golden {
  messages: Record<string, unknown>[];
  template: string;
  cases: {
    template: string;
    name: string;
    text?: string;
    error?: string;
    errorType?: string;
    messages: object[];
    addGenerationPrompt: boolean;
    variables: Record<string, unknown>;
  }[];
}
const golden = (name: string): Golden => JSON.parse(readFileSync(sharedPath('golden/chat', name), 'utf8'));

describe.skipIf(noShared)('renderings of reference', () => {
  it('SmolLM2', async () => {
    const { template: source, cases } = golden('smollm2.json');
    const template = await create(source);
    expect(cases.length).toBe(26);
    for (const { name, messages, addGenerationPrompt, text } of cases) {
      expect({ name, text: await template.render({ messages, addGenerationPrompt }) }).toEqual({ name, text });
    }
  });

  it('nine styles of template', async () => {
    const { cases } = golden('styles.json');
    expect(cases.length).toBe(39);
    const templates = new Map<string, ChatTemplate>();
    for (const { template: file, name, messages, variables, text, error } of cases) {
      if (!templates.has(file))
        templates.set(file, await create(readFileSync(sharedPath('golden/chat/templates', file), 'utf8')));
      const { tools, add_generation_prompt, bos_token, eos_token, ...kwargs } = variables;
      expect([bos_token, eos_token]).toEqual(['<s>', '</s>']);
      const result = await templates
        .get(file)!
        .render({
          messages,
          tools: (tools ?? null) as object[] | null,
          addGenerationPrompt: add_generation_prompt as boolean,
          kwargs,
        })
        .catch((caught: PagodaError) => `! ${caught.message}`);
      expect({ file, name, result }).toEqual({ file, name, result: error === undefined ? text : `! ${error}` });
    }
  });

  it('the language, feature by feature', async () => {
    const { messages, cases } = golden('language.json');
    expect(cases.length).toBe(67);
    const wrong: object[] = [];
    for (const { template, text, error, errorType } of cases) {
      const result = await renderOnce(template, { messages });
      const isRight =
        error === undefined
          ? result === text
          : errorType === 'TemplateError'
            ? result === `! ${error}`
            : result.startsWith('! ');
      if (isRight === KNOWN_GAPS.has(template)) wrong.push({ template, result, expected: text ?? error });
    }
    expect(wrong).toEqual([]);
  });
});

describe('a template that misbehaves', () => {
  it('reaches no code, file or prototype', async () => {
    for (const source of [
      "{{ ''.constructor.constructor('return process')() }}",
      "{{ messages.constructor.constructor('return 1')() }}",
      "{{ {}['__proto__']['polluted'] }}",
      '{{ cycler.__init__.__globals__ }}',
      '{{ self._TemplateReference__context }}',
      "{% import 'os' as os %}{{ os }}",
      "{% include '/etc/passwd' %}",
      '{{ namespace(__proto__=1).toString() }}',
      "{{ raise_exception.call.constructor('x')() }}",
      "{{ [].map.constructor('return process')() }}",
    ]) {
      expect(await outcome(source)).toMatch(/^! The (model's )?chat template/);
    }
    expect(
      await outcome("{{ ''.constructor }}|{{ messages.__class__ }}|{{ messages.length }}|{{ {}.hasOwnProperty }}"),
    ).toBe('|||');
    expect(({} as Record<string, unknown>).polluted).toBeUndefined();
  });

  it('raises with its own sentence and nothing else, and serves the next request', async () => {
    const template = await create(
      "{% if messages|length == 0 %}{{ raise_exception('no messages, please send some') }}{% endif %}ok",
    );
    const empty = template.render({ messages: [], addGenerationPrompt: true });
    await expect(empty).rejects.toMatchObject({ code: 'template_error', message: 'no messages, please send some' });
    expect(await template.render({ messages: [{ role: 'user', content: 'x' }], addGenerationPrompt: true })).toBe('ok');
  });

  it('fails without showing its source or a stack', async () => {
    const message = await outcome('SECRET {{ messages.SECRET.SECRET_FIELD + 1 }}', { messages: [] });
    expect(message).toMatch(/^! The chat template failed: /);
    expect(message).not.toMatch(/SECRET \{|\bat |\.js|node_modules/);
    expect(message.length).toBeLessThan(400);
  });

  it('is stopped at its deadline, its output limit or its memory limit, and the next render works', async () => {
    const modes = {
      loops: '{% for a in range(90000) %}{% for b in range(90000) %}{% set x = a * b %}{% endfor %}{% endfor %}',
      range: '{% for a in range(10**8) %}{% endfor %}',
      doubling: `{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(40) %}{% set ns.s = ns.s + ns.s %}{% endfor %}`,
      list: '{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}',
      wide: "{% for i in range(100) %}{{ 'x' * 60000 }}{% endfor %}",
      nested:
        '{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l|tojson }}',
      pad: "{{ '%999999999d' % 1 }}",
      hoard:
        "{% set ns = namespace(l=[]) %}{% for i in range(300) %}{% set ns.l = ns.l + [('x' * 1000000)|upper] %}{% endfor %}",
    };
    const branches = Object.entries(modes).map(([mode, body]) => `{% if mode == '${mode}' %}${body}{% endif %}`);
    const template = await create(`${branches.join('')}fine`, { deadlineMs: 2000 });
    const render = (mode: string) => template.render({ messages: [], addGenerationPrompt: true, kwargs: { mode } });
    const expected: Record<keyof typeof modes, RegExp> = {
      loops: /longer than 2000 ms/,
      range: /range may have at most/,
      doubling: /text of more than/,
      list: /list of more than/,
      wide: /text of more than|longer than/,
      nested: /longer than|text of more than/,
      pad: /text of more than/,
      hoard: /too much memory|longer than/,
    };
    for (const mode of Object.keys(modes) as (keyof typeof modes)[]) {
      const error: PagodaError = await render(mode).then(
        (text) => expect.fail(`${mode} gave ${text.length} characters`),
        (caught) => caught,
      );
      expect([mode, error.code]).toEqual([mode, 'template_error']);
      // A busy machine may run into the deadline first.
      if (!/longer than 2000 ms/.test(error.message)) expect(error.message).toMatch(expected[mode]);
      // And a fresh thread on it may need more than one deadline.
      let text = '';
      for (let i = 0; i < 30 && text !== 'fine'; i++) text = await render('none').catch(() => '');
      expect(text).toBe('fine');
    }
  });

  it('does not hold up the event loop', async () => {
    const template = await create('{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}', {
      deadlineMs: 1000,
    });
    let numTicks = 0;
    const timer = setInterval(() => numTicks++, 10);
    await expect(template.render({ messages: [], addGenerationPrompt: true })).rejects.toThrow(/longer than/);
    clearInterval(timer);
    expect(numTicks).toBeGreaterThan(0);
  });

  it('is refused at loading when it nests too deeply or does not end', async () => {
    for (const source of [
      `{{ ${'('.repeat(20_000)}1${')'.repeat(20_000)} }}`,
      `${'{% if true %}'.repeat(20_000)}x${'{% endif %}'.repeat(20_000)}`,
      '{% for x in messages %}never closed',
      '{% if %}',
      '{{ "unterminated }}',
      '{% nonsense %}',
    ]) {
      expect(await outcome(source)).toMatch(/^! The model's chat template cannot be used: /);
    }
  });

  it('may recurse without end and still only fails', async () => {
    expect(await outcome('{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}')).toMatch(
      /^! The chat template failed: it nests too deeply/,
    );
  });

  it('a megabyte of source loads', async () => {
    const template = await create(`{# ${'x'.repeat(1 << 20)} #}${'text '.repeat(1 << 16)}`);
    expect((await template.render({ messages: [], addGenerationPrompt: true })).length).toBe(5 << 16);
  });
});

describe('what a request can set', () => {
  const source =
    '{{ messages[0].content }}|{{ tools is none }}|{{ add_generation_prompt }}|{{ bos_token }}|{{ eos_token }}|{{ extra }}|{{ enable_thinking }}';

  it('is every name but those that the template gets from elsewhere', async () => {
    const template = await create(source);
    const kwargs = {
      messages: [{ content: 'forged' }],
      tools: ['forged'],
      add_generation_prompt: 'x',
      bos_token: 'forged',
      eos_token: 'forged',
      raise_exception: 'forged',
      range: 1,
      true: false,
      tokenize: true,
      chat_template: 'forged',
      extra: 'e',
      enable_thinking: false,
    };
    const text = await template.render({
      messages: [{ role: 'user', content: 'real' }],
      addGenerationPrompt: true,
      kwargs,
    });
    expect(text).toBe('real|True|True|<s>|</s>|e|False');
  });

  it('renders many requests in order', async () => {
    const template = await create(source);
    const texts = await Promise.all(
      Array.from({ length: 50 }, (_, i) =>
        template.render({ messages: [{ content: `m${i}` }], addGenerationPrompt: false }),
      ),
    );
    for (const [i, text] of texts.entries()) expect(text).toMatch(new RegExp(`^m${i}\\|`));
  });

  it('ends with close', async () => {
    const template = await create(source);
    const pending = template.render({ messages: [], addGenerationPrompt: false });
    await Promise.all([template.close(), expect(pending).rejects.toMatchObject({ code: 'aborted' })]);
    await expect(template.render({ messages: [], addGenerationPrompt: false })).rejects.toMatchObject({
      code: 'aborted',
    });
  });
});

describe('content format', () => {
  it('is told from the source', () => {
    expect(detectContentFormat("{% for m in messages %}{{ m['content'] }}{% endfor %}")).toBe('string');
    expect(
      detectContentFormat(
        "{% for m in messages %}{% for part in m['content'] %}{{ part.text }}{% endfor %}{% endfor %}",
      ),
    ).toBe('openai');
    expect(detectContentFormat('{%- for c in message.content -%}{{ c.text }}{%- endfor -%}')).toBe('openai');
    expect(detectContentFormat("{% for call in m.tool_calls %}{{ m.content.split('x') }}{% endfor %}")).toBe('string');
  });
});
