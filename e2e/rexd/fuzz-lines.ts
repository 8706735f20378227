import { METHODS, paramsOf } from '../../src/doors/rpc/schemas.ts'
import type { Method } from '../../src/protocol/rexd/methods.ts'
import { MAX_RPC_BATCH, MAX_RPC_ID } from '../../src/protocol/limits/rexd.ts'

/** mulberry32 gives the same numbers for the same seed on every machine. */
export class Chance {
  #state: number

  constructor(seed: number) {
    this.#state = seed
  }

  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0
    let t = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296
  }

  below(limit: number): number {
    return Math.floor(this.next() * limit)
  }

  one<T>(of: readonly T[]): T {
    return of[this.below(of.length)]!
  }
}

/** Values that often break programs. */
export const WEIRD: readonly unknown[] = [
  null,
  true,
  0,
  -1,
  1.5,
  1e308,
  2 ** 53,
  '',
  ' ',
  'x'.repeat(65),
  'x'.repeat(5_000),
  'é'.repeat(64),
  '中'.repeat(2_000),
  '\ud800',
  'a\u0000b',
  '../../../etc/passwd',
  '/',
  '-rf',
  '__proto__',
  '*** Begin Patch\n*** End Patch',
  [],
  [null],
  [[]],
  [''],
  {},
  { a: { b: {} } },
  { length: -1 },
]

export interface Live {
  readonly session_id: string
  readonly process_id: string
}

/** Valid parameters of each method, except of methods that would end what the others need. */
const BASES: Readonly<Partial<Record<Method, Readonly<Record<string, unknown>>>>> = {
  'session.info': {},
  'exec.wait': { process_id: 'p', timeout_ms: 1 },
  'exec.kill': { process_id: 'p', signal: 'CONT' },
  'exec.input': { process_id: 'p', data: 'x', encoding: 'utf8', eof: false },
  'fs.read': { path: 'file', offset: 0, length: 10, encoding: 'utf8' },
  'fs.write': { path: 'new', content: 'x', encoding: 'utf8', mode: 'replace', mkdir_parents: false, atomic: true },
  'fs.list': { path: '.', recursive: false, max_entries: 5 },
  'fs.glob': { pattern: '*', cwd: '.', max_matches: 5 },
  'fs.stat': { path: 'file' },
  'fs.edit': { path: 'file', old_string: 'abc', new_string: 'abc2', replace_all: false },
  'fs.patch': { patch_text: '*** Begin Patch\n*** Add File: added\n+x\n*** End Patch', cwd: '.' },
}
/** Each of these creates a process or a session. */
const RARE: typeof BASES = {
  'session.open': { client_name: 'fuzz', workspace_roots: ['.'], limits: { max_output_bytes: 10 } },
  'session.close': { session_id: 's_x' },
  'exec.start': { argv: ['true'], cwd: '.', env: { LC_TIME: 'x' }, stdin: 'x', timeout_ms: 1_000, detach: false, stdin_open: false },
}
const RARELY = 0.004

type Request = Record<string, unknown>

const base = (chance: Chance, live: Live, id: string): Request => {
  const table = chance.next() < RARELY ? RARE : BASES
  const method = chance.one(Object.keys(table)) as Method
  const params: Request = { ...table[method] }
  if ('session_id' in paramsOf(method).shape && !('session_id' in params)) params['session_id'] = live.session_id
  if ('process_id' in params) params['process_id'] = live.process_id
  return { jsonrpc: '2.0', id, method, params }
}

/** A copy, because a value in a line may be modified there. */
const weird = (chance: Chance): unknown => structuredClone(chance.one(WEIRD))

const randomText = (chance: Chance): string =>
  Array.from({ length: chance.below(20) }, () => String.fromCharCode(chance.below(chance.next() < 0.9 ? 128 : 65_536))).join('')

export const randomJson = (chance: Chance, depth = 0): unknown => {
  const kind = chance.below(depth > 4 ? 5 : 7)
  if (kind === 0) return weird(chance)
  if (kind === 1) return chance.below(1_000) - 500
  if (kind === 2) return randomText(chance)
  if (kind === 3) return chance.next() < 0.5
  if (kind === 4) return null
  const inner = Array.from({ length: chance.below(5) }, () => randomJson(chance, depth + 1))
  if (kind === 5) return inner
  return Object.fromEntries(inner.map((value) => [chance.one(['jsonrpc', 'id', 'method', 'params', randomText(chance)]), value]))
}

const changeObject = (chance: Chance, request: Request): void => {
  const inParams = chance.next() < 0.8 && typeof request['params'] === 'object' && request['params'] !== null
  const target = (inParams ? request['params'] : request) as Request
  const key = chance.one(Object.keys(target).concat('extra'))
  const how = chance.below(5)
  if (how === 0) delete target[key]
  else if (how === 1) target[key] = randomJson(chance)
  else if (how === 2) target[key] = weird(chance)
  else if (how === 3) target[randomText(chance)] = weird(chance)
  else if (inParams) target[key] = randomText(chance)
  // session.close is excluded, because it would remove the session of later lines.
  else request['method'] = chance.one(METHODS.filter((method) => method !== 'session.close'))
}

const changeText = (chance: Chance, text: string): Buffer => {
  const bytes = Buffer.from(text)
  const at = chance.below(bytes.length)
  const how = chance.below(4)
  if (how === 0) return bytes.subarray(0, at)
  if (how === 1) bytes[at] = chance.below(256)
  if (how === 2) return Buffer.concat([bytes.subarray(0, at), bytes.subarray(chance.below(bytes.length))])
  if (how === 3) return Buffer.concat([bytes, bytes.subarray(at)])
  return bytes
}

const mutated = (chance: Chance, live: Live, id: string): Buffer => {
  const request = base(chance, live, id)
  for (let left = chance.below(3); left > 0; left--) changeObject(chance, request)
  const text = JSON.stringify(chance.next() < 0.05 ? [request, request, randomJson(chance)] : request)
  return chance.next() < 0.2 ? changeText(chance, text) : Buffer.from(text)
}

/** One line, without its end. */
export const randomLine = (chance: Chance, live: Live, id: string): Buffer => {
  const kind = chance.next()
  const line =
    kind < 0.7
      ? mutated(chance, live, id)
      : kind < 0.85
        ? Buffer.from(JSON.stringify(randomJson(chance)))
        : Buffer.from(Array.from({ length: chance.below(60) }, () => chance.below(256)))
  for (let at = line.indexOf(10); at !== -1; at = line.indexOf(10, at)) line[at] = 11
  return line
}

/** Every field of every method with every weird value, each with its own ID. */
export const everyFieldWrong = (live: Live): Buffer[] =>
  METHODS.flatMap((method) =>
    Object.keys(paramsOf(method).shape).flatMap((field) =>
      WEIRD.map((value, at) => {
        const params: Request = { ...(BASES[method] ?? RARE[method]) }
        if ('session_id' in paramsOf(method).shape && method !== 'session.close') params['session_id'] = live.session_id
        if ('process_id' in params) params['process_id'] = live.process_id
        return Buffer.from(
          JSON.stringify({ jsonrpc: '2.0', id: `${method}.${field}.${at}`, method, params: { ...params, [field]: value } }),
        )
      }),
    ),
  )

const isObject = (value: unknown): value is Request => typeof value === 'object' && value !== null && !Array.isArray(value)
const isId = (id: unknown): boolean =>
  id === null || (typeof id === 'string' && id.length <= MAX_RPC_ID) || (typeof id === 'number' && Number.isSafeInteger(id))

/** ID that the answer to this value must have, or undefined if there must be no answer. */
const answerTo = (value: unknown): unknown => {
  if (!isObject(value)) return null
  if (Object.hasOwn(value, 'id')) return isId(value['id']) ? value['id'] : null
  const { jsonrpc, method } = value
  const known = Object.keys(value).every((key) => ['jsonrpc', 'method', 'params'].includes(key))
  return jsonrpc === '2.0' && typeof method === 'string' && known ? undefined : null
}

/** IDs of all answers that a message must get. With a transport of lines, a blank line gets none. */
export const answersTo = (line: Buffer, areLines: boolean): unknown[] => {
  let value: unknown
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(line)
    if (areLines && text.trim() === '') return []
    value = JSON.parse(text)
  } catch {
    return [null]
  }
  if (!Array.isArray(value)) return [answerTo(value)].filter((id) => id !== undefined)
  if (value.length === 0 || value.length > MAX_RPC_BATCH) return [null]
  return value.map(answerTo).filter((id) => id !== undefined)
}
