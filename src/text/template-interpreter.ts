// Renders the syntax tree of a chat template. Python's meaning throughout; a template reaches nothing but the variables it is given.
// Deadlines are the worker's business: this code only promises to allocate no more than the text it builds.

import { applyFilter, getItem } from './template-filters.ts';
import { allowText, TemplateFailure } from './template-limits.ts';
import { methodOf } from './template-methods.ts';
import { binary, slice } from './template-operators.ts';
import type { AnyNode } from './template-syntax.ts';
import { runTest } from './template-tests.ts';
import {
  asKey,
  Callable,
  equals,
  Float,
  isTrue,
  itemsOf,
  type Key,
  Namespace,
  numberOf,
  Tuple,
  toText,
  typeName,
  type Value,
} from './template-values.ts';

type Kwargs = Map<string, Value>;

export class Scope {
  readonly #values = new Map<string, Value>();
  readonly #parent: Scope | null;

  constructor(parent: Scope | null) {
    this.#parent = parent;
  }

  set(name: string, value: Value): void {
    this.#values.set(name, value);
  }

  get(name: string): Value {
    for (let scope: Scope | null = this; scope; scope = scope.#parent) {
      if (scope.#values.has(name)) return scope.#values.get(name);
    }
    return undefined;
  }
}

/** `{% break %}` and `{% continue %}` on their way out; what was written before them stays. */
class LoopExit extends Error {
  readonly isBreak: boolean;
  text = '';
  constructor(isBreak: boolean) {
    super();
    this.isBreak = isBreak;
  }
}

export function render(body: readonly AnyNode[], globals: Scope): string {
  return block(body, new Scope(globals));
}

function block(nodes: readonly AnyNode[], scope: Scope): string {
  let text = '';
  try {
    for (const node of nodes) {
      text += statement(node, scope);
      allowText(text.length);
    }
  } catch (error) {
    if (error instanceof LoopExit) error.text = text + error.text;
    throw error;
  }
  return text;
}

const nodes = (value: unknown): readonly AnyNode[] => value as readonly AnyNode[];
const node = (value: unknown): AnyNode => value as AnyNode;
const nameOf = (value: unknown): string => String(node(value).value);

function statement(current: AnyNode, scope: Scope): string {
  switch (current.type) {
    case 'Comment':
      return '';
    case 'If':
      return block(nodes(isTrue(evaluate(node(current.test), scope)) ? current.body : current.alternate), scope);
    case 'For':
      return loop(current, scope);
    case 'Set':
      assign(current, scope);
      return '';
    case 'Macro':
      scope.set(nameOf(current.name), macro(nodes(current.args), nodes(current.body), scope));
      return '';
    case 'Break':
      throw new LoopExit(true);
    case 'Continue':
      throw new LoopExit(false);
    case 'CallStatement':
      return callBlock(current, scope);
    case 'FilterStatement':
      return filterBlock(current, scope);
    default:
      return toText(evaluate(current, scope));
  }
}

function assign(current: AnyNode, scope: Scope): void {
  const target = node(current.assignee);
  const isBlock = current.value === null;
  const value = isBlock ? block(nodes(current.body), new Scope(scope)) : evaluate(node(current.value), scope);
  if (isBlock && target.type === 'FilterExpression') {
    scope.set(nameOf(target.operand), filtered(value, node(target.filter), scope));
  } else bind(target, value, scope);
}

function bind(target: AnyNode, value: Value, scope: Scope): void {
  if (target.type === 'Identifier') {
    scope.set(nameOf(target), value);
  } else if (target.type === 'TupleLiteral') {
    const names = nodes(target.value);
    const items = itemsOf(value);
    if (items.length !== names.length) {
      throw new TemplateFailure(`${names.length} values were expected where there are ${items.length}`);
    }
    names.forEach((name, i) => {
      bind(name, items[i], scope);
    });
  } else if (target.type === 'MemberExpression') {
    const object = evaluate(node(target.object), scope);
    if (!(object instanceof Namespace)) throw new TemplateFailure('only attributes of a namespace can be set');
    object.values.set(nameOf(target.property), value);
  } else throw new TemplateFailure('this cannot be assigned to');
}

function loop(current: AnyNode, scope: Scope): string {
  let iterable = node(current.iterable);
  let test: AnyNode | null = null;
  if (iterable.type === 'SelectExpression') {
    test = node(iterable.test);
    iterable = node(iterable.lhs);
  }
  // `recursive` hangs on the condition when there is one.
  const isRecursive = [iterable, test].some(
    (each) => each?.type === 'FilterExpression' && nameOf(each.filter) === '__recursive',
  );
  return loopOver(evaluate(iterable, scope), { current, test, isRecursive, depth: 1 }, scope);
}

interface LoopParts {
  readonly current: AnyNode;
  readonly test: AnyNode | null;
  readonly isRecursive: boolean;
  readonly depth: number;
}

function loopOver(iterable: Value, parts: LoopParts, scope: Scope): string {
  const target = node(parts.current.loopvar);
  let items = itemsOf(iterable);
  if (parts.test) {
    items = items.filter((item) => {
      const inner = new Scope(scope);
      bind(target, item, inner);
      return isTrue(evaluate(parts.test!, inner));
    });
  }
  if (items.length === 0) return block(nodes(parts.current.defaultBlock), new Scope(scope));
  let text = '';
  let lastSeen: readonly Value[] | null = null;
  const changed = new Callable((args) => {
    const isSame = lastSeen !== null && equals([...lastSeen], [...args]);
    lastSeen = args;
    return !isSame;
  });
  for (let i = 0; i < items.length; i++) {
    const inner = new Scope(scope);
    bind(target, items[i], inner);
    inner.set('loop', loopVariable(items, i, { ...parts, changed, scope }));
    try {
      text += block(nodes(parts.current.body), inner);
      allowText(text.length);
    } catch (error) {
      if (!(error instanceof LoopExit)) throw error;
      text += error.text;
      if (error.isBreak) break;
    }
  }
  return text;
}

function loopVariable(
  items: readonly Value[],
  i: number,
  parts: LoopParts & { readonly changed: Callable; readonly scope: Scope },
): Value {
  const values: [string, Value][] = [
    ['index', i + 1],
    ['index0', i],
    ['revindex', items.length - i],
    ['revindex0', items.length - i - 1],
    ['first', i === 0],
    ['last', i === items.length - 1],
    ['length', items.length],
    ['previtem', items[i - 1]],
    ['nextitem', items[i + 1]],
    ['depth', parts.depth],
    ['depth0', parts.depth - 1],
    ['cycle', new Callable((args) => args[i % args.length])],
    ['changed', parts.changed],
  ];
  if (parts.isRecursive) {
    const again = new Callable(([next]) => loopOver(next, { ...parts, depth: parts.depth + 1 }, parts.scope));
    values.push(['__call', again]);
  }
  return new Namespace(new Map(values));
}

function macro(parameters: readonly AnyNode[], body: readonly AnyNode[], scope: Scope): Callable {
  return new Callable((args, kwargs) => {
    const inner = new Scope(scope);
    const rest = new Map(kwargs);
    parameters.forEach((parameter, i) => {
      const hasDefault = parameter.type === 'KeywordArgumentExpression';
      const name = nameOf(hasDefault ? parameter.key : parameter);
      let value = i < args.length ? args[i] : rest.get(name);
      if (i >= args.length && !rest.has(name) && hasDefault) value = evaluate(node(parameter.value), inner);
      rest.delete(name);
      inner.set(name, value);
    });
    inner.set('caller', rest.get('caller'));
    rest.delete('caller');
    inner.set('varargs', new Tuple(args.slice(parameters.length)));
    inner.set('kwargs', rest);
    return block(body, inner);
  });
}

function callBlock(current: AnyNode, scope: Scope): string {
  const call = node(current.call);
  const { args, kwargs } = evaluateArguments(nodes(call.args), scope);
  kwargs.set('caller', macro(nodes(current.callerArgs ?? []), nodes(current.body), scope));
  return toText(callValue(evaluate(node(call.callee), scope), args, kwargs));
}

function filterBlock(current: AnyNode, scope: Scope): string {
  const filter = node(current.filter);
  if (filter.type === 'CallExpression' && nameOf(filter.callee) === '__with') {
    const inner = new Scope(scope);
    for (const [name, value] of evaluateArguments(nodes(filter.args), scope).kwargs) inner.set(name, value);
    return block(nodes(current.body), inner);
  }
  return toText(filtered(block(nodes(current.body), new Scope(scope)), filter, scope));
}

function evaluate(current: AnyNode, scope: Scope): Value {
  switch (current.type) {
    case 'StringLiteral':
    case 'IntegerLiteral':
      return current.value as string | number;
    case 'FloatLiteral':
      return new Float(current.value as number);
    case 'Identifier':
      return scope.get(nameOf(current));
    case 'ArrayLiteral':
      return nodes(current.value).map((item) => evaluate(item, scope));
    case 'TupleLiteral':
      return new Tuple(nodes(current.value).map((item) => evaluate(item, scope)));
    case 'ObjectLiteral':
      return objectLiteral(current, scope);
    case 'MemberExpression':
      return member(current, scope);
    case 'CallExpression': {
      const callee = evaluate(node(current.callee), scope);
      const { args, kwargs } = evaluateArguments(nodes(current.args), scope);
      return callValue(callee, args, kwargs);
    }
    case 'FilterExpression':
      return filtered(evaluate(node(current.operand), scope), node(current.filter), scope);
    case 'TestExpression':
      return runTest(nameOf(current.test), evaluate(node(current.operand), scope)) !== current.negate;
    case 'UnaryExpression':
      return unary(nameOf(current.operator), evaluate(node(current.argument), scope));
    case 'BinaryExpression':
      return binaryExpression(current, scope);
    case 'Ternary':
      return evaluate(
        node(isTrue(evaluate(node(current.condition), scope)) ? current.trueExpr : current.falseExpr),
        scope,
      );
    case 'SelectExpression':
      return isTrue(evaluate(node(current.test), scope)) ? evaluate(node(current.lhs), scope) : undefined;
    default:
      throw new TemplateFailure(`"${current.type}" is not supported`);
  }
}

function objectLiteral(current: AnyNode, scope: Scope): Map<Key, Value> {
  const result = new Map<Key, Value>();
  for (const [key, value] of current.value as Map<AnyNode, AnyNode>) {
    result.set(asKey(evaluate(key, scope)), evaluate(value, scope));
  }
  return result;
}

const COMPARISONS = new Set(['==', '!=', '<', '<=', '>', '>=', 'in', 'not in']);

function binaryExpression(current: AnyNode, scope: Scope): Value {
  const operator = nameOf(current.operator);
  const left = node(current.left);
  // Python's chains: a < b < c is a < b and b < c; a comparison in parentheses has been wrapped and is none.
  if (COMPARISONS.has(operator) && left.type === 'BinaryExpression' && COMPARISONS.has(nameOf(left.operator))) {
    if (!isTrue(binaryExpression(left, scope))) return false;
    return binary(operator, evaluate(node(left.right), scope), evaluate(node(current.right), scope));
  }
  const value = evaluate(left, scope);
  if (operator === 'and') return isTrue(value) ? evaluate(node(current.right), scope) : value;
  if (operator === 'or') return isTrue(value) ? value : evaluate(node(current.right), scope);
  return binary(operator, value, evaluate(node(current.right), scope));
}

function unary(operator: string, value: Value): Value {
  if (operator === 'not') return !isTrue(value);
  const number = numberOf(value);
  if (number === null) throw new TemplateFailure(`the sign ${operator} does not work on ${typeName(value)}`);
  const signed = operator === '-' ? -number : number;
  return value instanceof Float ? new Float(signed) : signed;
}

function member(current: AnyNode, scope: Scope): Value {
  const object = evaluate(node(current.object), scope);
  const property = node(current.property);
  if (object === undefined) throw new TemplateFailure(`${describe(node(current.object))} is undefined`);
  if (!current.computed) {
    // A dot means the method first, then the key: `tool.items()` works whatever keys the tool has.
    const name = property.type === 'Identifier' ? nameOf(property) : (property.value as number);
    return (typeof name === 'string' ? methodOf(object, name) : undefined) ?? getItem(object, name);
  }
  if (property.type === 'SliceExpression') {
    const [start, stop, step] = [property.start, property.stop, property.step].map((each) =>
      each === undefined ? undefined : evaluate(node(each), scope),
    );
    if (typeof object === 'string' && !/[\ud800-\udfff]/.test(object) && (step === undefined || step === 1)) {
      return object.slice(start as number | undefined, (stop ?? undefined) as number | undefined);
    }
    const items = slice(itemsOf(object), start, stop, step);
    if (typeof object === 'string') return items.join('');

    return object instanceof Tuple ? new Tuple(items) : items;
  }
  const key = evaluate(property, scope);
  const item = getItem(object, key);
  return item === undefined && typeof key === 'string' ? methodOf(object, key) : item;
}

/** A name for messages; never the template's text. */
function describe(current: AnyNode): string {
  if (current.type === 'Identifier') return `"${nameOf(current)}"`;
  const property = current.type === 'MemberExpression' ? node(current.property) : null;
  return property?.type === 'Identifier' || property?.type === 'StringLiteral' ? `"${nameOf(property)}"` : 'a value';
}

function filtered(value: Value, filter: AnyNode, scope: Scope): Value {
  const isCall = filter.type === 'CallExpression';
  const name = nameOf(isCall ? filter.callee : filter);
  const { args, kwargs } = evaluateArguments(isCall ? nodes(filter.args) : [], scope);
  const test = /^__is(not)?_(\w+)$/.exec(name);
  if (test) return runTest(test[2]!, value, args[0]) !== (test[1] !== undefined);
  return applyFilter(name, value, args, kwargs);
}

function evaluateArguments(list: readonly AnyNode[], scope: Scope): { args: Value[]; kwargs: Kwargs } {
  const args: Value[] = [];
  const kwargs: Kwargs = new Map();
  for (const argument of list) {
    switch (argument.type) {
      case 'KeywordArgumentExpression':
        kwargs.set(nameOf(argument.key), evaluate(node(argument.value), scope));
        break;
      case 'SpreadExpression':
        args.push(...itemsOf(evaluate(node(argument.argument), scope)));
        break;
      case 'KeywordSpreadExpression': {
        const spread = evaluate(node(argument.argument), scope);
        if (spread instanceof Map) for (const [key, value] of spread) kwargs.set(String(key), value);
        break;
      }
      default:
        args.push(evaluate(argument, scope));
    }
  }
  return { args, kwargs };
}

function callValue(callee: Value, args: readonly Value[], kwargs: ReadonlyMap<string, Value>): Value {
  const target = callee instanceof Namespace ? callee.values.get('__call') : callee;
  if (!(target instanceof Callable)) throw new TemplateFailure(`a value of type ${typeName(callee)} cannot be called`);
  return target.call(args, kwargs);
}
