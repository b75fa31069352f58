// Chat template source to syntax tree, by the lexer and parser of @huggingface/jinja. What its grammar lacks (raw and with blocks,
// tests with arguments, recursive loops, one-element tuples, 1e3 and 0x10) is rewritten into what it has, with names that
// start with `__` and that the interpreter knows. The node types are those of the library's ast.ts.

import { parse, tokenize } from '@huggingface/jinja';

export interface Node {
  readonly type: string;
}

/** Any field of any node; the interpreter reads those that the node's type has. */
export type AnyNode = Node & { readonly [field: string]: unknown };

interface Token {
  value: string;
  type: string;
}

/** Tests that take an argument, also without parentheses: `x is divisibleby 2`. */
const TESTS_WITH_ARGUMENT = new Set('divisibleby eq equalto ne sameas lt lessthan le gt greaterthan ge in'.split(' '));
const RAW = /(^[ \t]*)?\{%([-+]?)\s*raw\s*(-?)%\}([\s\S]*?)\{%(-?)\s*endraw\s*([-+]?)%\}(\n?)/gm;

/** Throws whatever the library throws for source it cannot parse. */
export function parseTemplate(source: string): readonly AnyNode[] {
  const text = protectRaw(source.replace(/\r\n?/g, '\n'));
  const tokens = tokenize(text, { trim_blocks: true, lstrip_blocks: true }) as Token[];
  const rewritten = rewriteTests(rewriteTuples(rewriteBlocks(mergeNumbers(tokens))));
  return parse(rewritten as Parameters<typeof parse>[0]).body as unknown as readonly AnyNode[];
}

/** A raw block becomes a string literal; trim_blocks and lstrip_blocks as for any other block. */
function protectRaw(source: string): string {
  return source.replace(
    RAW,
    (_all, indent: string | undefined, open, stripStart, body: string, stripEnd, close, newline) => {
      let content = body;
      if (stripStart) content = content.trimStart();
      else if (content.startsWith('\n')) content = content.slice(1);
      if (stripEnd) content = content.trimEnd();
      const literal = content.replace(/[\\'{}\n]/g, (char) => `\\x${char.charCodeAt(0).toString(16).padStart(2, '0')}`);
      const before = open === '+' ? (indent ?? '') : '';
      const after = close === '+' ? newline : '';
      return `${before}{{${open === '-' ? '-' : ''} '${literal}' ${close === '-' ? '-' : ''}}}${after}`;
    },
  );
}

/** `1e3`, `1_000` and `0x10` come out of the lexer as a number and a name. */
function mergeNumbers(tokens: readonly Token[]): Token[] {
  const out: Token[] = [];
  for (const token of tokens) {
    const last = out.at(-1);
    const isSuffix = token.type === 'Identifier' && last?.type === 'NumericLiteral';
    if (isSuffix && /^[eE]\d+$/.test(token.value)) last.value = asFloatLiteral(Number(last.value + token.value));
    else if (isSuffix && /^(_\d+)+$/.test(token.value)) last.value += token.value.replaceAll('_', '');
    else if (isSuffix && last.value === '0' && /^[xob][0-9a-fA-F]+$/.test(token.value)) {
      last.value = String(Number(`0${token.value}`));
    } else out.push({ value: token.value, type: token.type });
  }
  return out;
}

function asFloatLiteral(value: number): string {
  const digits = value.toFixed(1);
  return digits.includes('e') ? `${BigInt(value)}.0` : digits;
}

const token = (value: string, type: string): Token => ({ value, type });
const OPEN = (): Token => token('(', 'OpenParen');
const CLOSE = (): Token => token(')', 'CloseParen');

/** `{% with a = 1 %}` becomes `{% filter __with(a = 1) %}`; `recursive` becomes a filter on what is looped over. */
function rewriteBlocks(tokens: readonly Token[]): Token[] {
  const out: Token[] = [];
  let isWith = false;
  for (let i = 0; i < tokens.length; i++) {
    const current = tokens[i]!;
    const opensBlock = tokens[i - 1]?.type === 'OpenStatement' && current.type === 'Identifier';
    if (opensBlock && current.value === 'with') {
      out.push(token('filter', 'Identifier'), token('__with', 'Identifier'), OPEN());
      isWith = true;
    } else if (opensBlock && current.value === 'endwith') {
      out.push(token('endfilter', 'Identifier'));
    } else if (isWith && current.type === 'CloseStatement') {
      out.push(CLOSE(), current);
      isWith = false;
    } else if (current.value === 'recursive' && tokens[i + 1]?.type === 'CloseStatement') {
      out.push(token('|', 'Pipe'), token('__recursive', 'Identifier'));
    } else out.push(current);
  }
  return out;
}

/** `(x,)` becomes `([x] | __tuple)`; `(a == b)` becomes `(a == b) | __group`, so that it is no part of a chain of comparisons. */
function rewriteTuples(tokens: readonly Token[]): Token[] {
  const out: Token[] = [];
  const open: { at: number; isGroup: boolean; numCommas: number; isComparison: boolean }[] = [];
  for (let i = 0; i < tokens.length; i++) {
    const current = tokens[i]!;
    if (isOpening(current)) {
      open.push({
        at: out.length,
        isGroup: current.type === 'OpenParen' && !endsOperand(out.at(-1)),
        numCommas: 0,
        isComparison: false,
      });
    }
    const group = open.at(-1);
    if (current.type === 'Comma' && group) {
      group.numCommas++;
      if (group.isGroup && tokens[i + 1]?.type === 'CloseParen') {
        if (group.numCommas > 1) continue;
        out.splice(group.at + 1, 0, token('[', 'OpenSquareBracket'));
        out.push(token(']', 'CloseSquareBracket'), token('|', 'Pipe'), token('__tuple', 'Identifier'));
        continue;
      }
    }
    if (group && isComparison(current)) group.isComparison = true;
    out.push(current);
    if (isClosing(current)) {
      open.pop();
      if (group?.isGroup && group.isComparison) out.push(token('|', 'Pipe'), token('__group', 'Identifier'));
    }
  }
  return out;
}

const isOpening = (t: Token): boolean => /^Open(Paren|SquareBracket|CurlyBracket)$/.test(t.type);
const isClosing = (t: Token): boolean => /^Close(Paren|SquareBracket|CurlyBracket)$/.test(t.type);
const isComparison = (t: Token): boolean =>
  t.type === 'ComparisonBinaryOperator' || (t.type === 'Identifier' && t.value === 'in');
const KEYWORDS = new Set('in and or not if else elif is set for'.split(' '));

/** After an operand a parenthesis is a call. */
function endsOperand(before: Token | undefined): boolean {
  if (!before) return false;
  if (before.type === 'Identifier') return !KEYWORDS.has(before.value);
  return isClosing(before) || before.type === 'StringLiteral';
}

/** `x is not in [1]` becomes `x | __isnot_in([1])`. */
function rewriteTests(tokens: readonly Token[]): Token[] {
  const out: Token[] = [];
  let i = 0;
  while (i < tokens.length) {
    const isTest = tokens[i]!.type === 'Identifier' && tokens[i]!.value === 'is' && tokens[i - 1]?.type !== 'Dot';
    const isNegated = isTest && tokens[i + 1]?.value === 'not';
    const name = tokens[i + (isNegated ? 2 : 1)];
    const first = i + (isNegated ? 3 : 2);
    if (!isTest || !name || !TESTS_WITH_ARGUMENT.has(name.value) || !tokens[first]) {
      out.push(tokens[i++]!);
      continue;
    }
    out.push(token('|', 'Pipe'), token(`__is${isNegated ? 'not' : ''}_${name.value}`, 'Identifier'));
    if (tokens[first]!.type === 'OpenParen') {
      i = first;
      continue;
    }
    const end = endOfOperand(tokens, first);
    out.push(OPEN(), ...rewriteTests(tokens.slice(first, end)), CLOSE());
    i = end;
  }
  return out;
}

/** The index after one operand: a literal, a name, or a bracketed group, with what hangs on it (`.x`, `[0]`, `(…)`). */
function endOfOperand(tokens: readonly Token[], start: number): number {
  let i = start;
  let depth = 0;
  do {
    if (isOpening(tokens[i]!)) depth++;
    if (isClosing(tokens[i]!)) depth--;
    i++;
    const next = tokens[i];
    if (depth === 0 && next?.type === 'Dot') i += 2;
    if (depth === 0 && tokens[i] && !(isOpening(tokens[i]!) && tokens[i]!.type !== 'OpenCurlyBracket')) break;
  } while (i < tokens.length && (depth > 0 || isOpening(tokens[i]!)));
  return i;
}
