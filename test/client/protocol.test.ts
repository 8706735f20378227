import assert from 'node:assert/strict'
import { test } from 'node:test'

import type { z } from 'zod'

import { PROTOCOL as OURS, type Method, type Params, type Result } from '../../src/client/protocol.ts'
import type { FsEntry } from '../../src/client/protocol-files.ts'
import type { ProcessStatus, ProcessSummary } from '../../src/client/protocol-processes.ts'
import type { Events, LimitsParams, SessionGrant } from '../../src/client/protocol-sessions.ts'
import { connected } from './real-server.ts'
import { PROTOCOL } from '../../src/doors/rpc/own-sessions.ts'
import type { ProcessStatus as ServerStatus } from '../../src/doors/rpc/rpc-process.ts'
import type { SessionGrant as ServerGrant } from '../../src/doors/rpc/rpc-session.ts'
import { PARAMS, type Method as ServerMethod } from '../../src/doors/rpc/schemas.ts'

/** A table that the compiler lets have these fields and no others: true where a field must be there. */
type Fields<T> = { readonly [Key in keyof T]-?: object extends Pick<T, Key> ? false : true }

/** The params of every method, as the client declares them. */
const CLIENT: { readonly [M in Method]: Fields<Params<M>> } = {
  'session.open': {
    client_name: true,
    client_version: false,
    workspace_roots: false,
    requested_capabilities: false,
    limits: false,
    resumable: false,
    target: false,
  },
  'session.resume': { session_id: true, resume_token: true, cursor: false },
  'session.events': { session_id: true, cursor: true, timeout_ms: false },
  'session.close': { session_id: true },
  'session.info': { session_id: true },
  'exec.start': {
    session_id: true,
    argv: false,
    command: false,
    shell: false,
    login: false,
    cwd: false,
    env: false,
    stdin: false,
    stdin_encoding: false,
    stdin_open: false,
    timeout_ms: false,
    max_output_bytes: false,
    fail_on_limit: false,
    detach: false,
  },
  'exec.wait': { session_id: true, process_id: true, timeout_ms: false },
  'exec.kill': { session_id: true, process_id: true, signal: false },
  'exec.input': { session_id: true, process_id: true, data: true, encoding: false, eof: false },
  'pty.open': {
    session_id: true,
    argv: false,
    command: false,
    shell: false,
    login: false,
    cwd: false,
    env: false,
    cols: false,
    rows: false,
    timeout_ms: false,
    max_output_bytes: false,
  },
  'pty.input': { session_id: true, pty_id: true, data: true, encoding: false },
  'pty.resize': { session_id: true, pty_id: true, cols: true, rows: true },
  'pty.close': { session_id: true, pty_id: true, kill: false },
  'fs.read': { session_id: true, path: true, offset: false, length: false, encoding: false },
  'fs.write': {
    session_id: true,
    path: true,
    content: true,
    encoding: false,
    mode: false,
    mkdir_parents: false,
    atomic: false,
    expected_mtime: false,
  },
  'fs.list': { session_id: true, path: true, recursive: false, max_entries: false },
  'fs.glob': { session_id: true, pattern: true, cwd: false, max_matches: false },
  'fs.stat': { session_id: true, path: true },
  'fs.edit': { session_id: true, path: true, old_string: true, new_string: true, replace_all: false, expected_mtime: false },
  'fs.patch': { session_id: true, patch_text: true, cwd: false },
}
const CLIENT_LIMITS: Fields<LimitsParams> = {
  max_output_bytes: false,
  max_file_read_bytes: false,
  max_processes_per_session: false,
  default_timeout_ms: false,
  hard_timeout_ms: false,
}

/** The fields of every result, as the client declares them; true: always there. */
const RESULTS: { readonly [M in Method]: Fields<Result<M>> } = {
  'session.open': {
    session_id: true,
    protocol: true,
    server_version: true,
    capabilities: true,
    limits: true,
    workspace_roots: true,
    target: false,
    resume_token: false,
    resume_window_ms: false,
  },
  'session.resume': {
    session_id: true,
    client_name: true,
    opened_at: true,
    cwd: true,
    capabilities: true,
    limits: true,
    workspace_roots: true,
    target: false,
    processes: true,
    detached: false,
    protocol: true,
    server_version: true,
  },
  'session.events': { events: true, cursor: true, gap: true },
  'session.close': { ok: true, terminated: true },
  'session.info': {
    session_id: true,
    client_name: true,
    opened_at: true,
    cwd: true,
    capabilities: true,
    limits: true,
    workspace_roots: true,
    target: false,
    processes: true,
    detached: false,
  },
  'exec.start': { process_id: true, started_at: true, timeout_ms: true, max_output_bytes: true },
  'exec.wait': { status: true, exit_code: true, signal: true, bytes_stdout: true, bytes_stderr: true, held: true },
  'exec.kill': { ok: true },
  'exec.input': { accepted_bytes: true },
  'pty.open': { pty_id: true, process_id: true, started_at: true, timeout_ms: true, max_output_bytes: true },
  'pty.input': { accepted_bytes: true },
  'pty.resize': { ok: true },
  'pty.close': { ok: true },
  'fs.read': { path: true, size: true, mtime: true, mtime_ms: true, encoding: true, content: true, lossy: false, truncated: true },
  'fs.write': { path: true, bytes_written: true, mtime: true, mtime_ms: true, created: true, atomic: true },
  'fs.list': { path: true, entries: true, truncated: true },
  'fs.glob': { path: true, matches: true, truncated: true },
  'fs.stat': {
    path: true,
    exists: true,
    type: true,
    size: true,
    mtime: true,
    mtime_ms: true,
    mode: true,
    uid: true,
    gid: true,
    symlink_target: true,
  },
  'fs.edit': { path: true, bytes_written: true, replacements: true, mtime: true, mtime_ms: true, created: true },
  'fs.patch': { path: true, added: true, updated: true, deleted: true, moved: true },
}
const OUTPUT = { session_id: true, process_id: true, seq: true, data: true, encoding: true, cursor: false } as const
const EXIT = {
  session_id: true,
  process_id: true,
  exit_code: true,
  signal: true,
  timed_out: true,
  duration_ms: true,
  bytes_stdout: true,
  bytes_stderr: true,
  truncated: true,
  cursor: false,
} as const
const EVENTS: { readonly [E in keyof Events]: Fields<Events[E]> } = {
  'exec.stdout': OUTPUT,
  'exec.stderr': OUTPUT,
  'exec.exit': EXIT,
  'exec.error': { session_id: true, process_id: true, code: true, message: true, data: true, cursor: false },
  'pty.output': { ...OUTPUT, pty_id: true },
  'pty.exit': { ...EXIT, pty_id: true },
  'session.gap': { session_id: true, from: true, to: true },
}
const ENTRY: Fields<FsEntry> = { name: true, path: true, type: true, size: true, mtime: true, mtime_ms: true }
const SUMMARY: Fields<ProcessSummary> = { ...RESULTS['exec.wait'], process_id: true, argv: true, started_at: true, cwd: true }

type Assert<T extends true> = T
/** Read-only is no matter of what is said. */
type Loose<T> = T extends readonly (infer Item)[] ? Loose<Item>[] : T extends object ? { -readonly [Key in keyof T]: Loose<T[Key]> } : T
type Both<A, B> = [A] extends [B] ? ([B] extends [A] ? true : false) : false
/** What may be left out must be named as well. */
type Same<A, B> = Both<A, B> extends true ? Both<keyof A, keyof B> : false
/** What the client may say, the server takes; what the server's door calls these, the client calls the same. */
export type Checked = [
  Assert<{ [M in Method]: Loose<Params<M>> extends z.input<(typeof PARAMS)[M]> ? true : false }[Method]>,
  Assert<Same<Method, ServerMethod>>,
  Assert<Same<ProcessStatus, ServerStatus>>,
  Assert<Same<SessionGrant, ServerGrant>>,
]

const required = (schema: z.ZodType): boolean => !schema.safeParse(undefined).success

test('the client has the methods of the server, each with its params', () => {
  assert.deepEqual(Object.keys(CLIENT).toSorted(), Object.keys(PARAMS).toSorted())
  for (const [method, fields] of Object.entries(CLIENT)) {
    const { shape } = PARAMS[method as Method] as z.ZodObject
    const server = Object.fromEntries(Object.entries(shape).map(([name, schema]) => [name, required(schema as z.ZodType)]))
    assert.deepEqual({ ...fields }, server, method)
  }
  const { limits } = PARAMS['session.open'].shape
  assert.deepEqual(Object.keys(CLIENT_LIMITS).toSorted(), Object.keys(limits.unwrap().shape).toSorted())
  assert.equal(OURS, PROTOCOL)
})

/** The fields that are there always, and no others but those that may be. */
const requireFields = (value: object, fields: Readonly<Record<string, boolean>>, what: string): void => {
  const names = Object.keys(value)
  const missing = Object.keys(fields).filter((name) => fields[name] && !names.includes(name))
  const unknown = names.filter((name) => !(name in fields))
  assert.deepEqual({ missing, unknown }, { missing: [], unknown: [] }, what)
}

test('what the server answers and tells has the fields that the client declares', async (t) => {
  const events: { method: keyof Events; params: object }[] = []
  const { client } = await connected(t, {
    connect: { onEvent: (event) => events.push(event) },
    limits: 'max_file_read_bytes = 100',
    security: 'allow_targets = ["bob"]',
  })
  const seen = new Set<Method>()
  const call = async <M extends Method>(method: M, params: Params<M>): Promise<Result<M>> => {
    const result = await client.call(method, params)
    requireFields(result, RESULTS[method], method)
    seen.add(method)
    return result
  }
  const { session_id } = await call('session.open', { client_name: 'fields' })
  const run = async (argv: readonly string[]): Promise<unknown> => {
    const { process_id } = await call('exec.start', { session_id, argv })
    return call('exec.wait', { session_id, process_id })
  }
  const { process_id } = await call('exec.start', { session_id, command: 'cat; echo err >&2', shell: true, stdin_open: true })
  await call('exec.input', { session_id, process_id, data: 'x', eof: true })
  await call('exec.wait', { session_id, process_id })
  await call('exec.kill', { session_id, process_id })
  const { processes } = await call('session.info', { session_id })
  requireFields(processes[0]!, SUMMARY, 'a process')
  await call('fs.write', { session_id, path: 'a', content: 'x' })
  await call('fs.read', { session_id, path: 'a' })
  await call('fs.stat', { session_id, path: 'a' })
  const { entries } = await call('fs.list', { session_id, path: '.' })
  requireFields(entries[0]!, ENTRY, 'an entry')
  await call('fs.glob', { session_id, pattern: '*' })
  await call('fs.edit', { session_id, path: 'a', old_string: 'x', new_string: 'y' })
  await call('fs.patch', { session_id, patch_text: '*** Begin Patch\n*** Delete File: a\n*** End Patch\n' })
  await call('fs.write', { session_id, path: 'bad', content: '#!/no/such/interpreter\n' })
  await run(['chmod', '+x', 'bad'])
  const { workspace_roots } = await call('session.info', { session_id })
  await run([`${workspace_roots[0]}/bad`])
  await call('session.close', { session_id })
  for (const { method, params } of events) requireFields(params, EVENTS[method], method)
  assert.deepEqual([...new Set(events.map(({ method }) => method))].toSorted(), ['exec.error', 'exec.exit', 'exec.stderr', 'exec.stdout'])
  // Over standard input and output there is nothing to come back to; terminals have to be granted.
  const elsewhere = await call('session.open', { client_name: 'fields', target: 'bob' })
  assert.equal(elsewhere.target, 'bob')
  const { target, cwd } = await call('session.info', { session_id: elsewhere.session_id })
  assert.deepEqual([target, cwd], ['bob', null])
  const others = (Object.keys(RESULTS) as Method[]).filter((method) => !seen.has(method))
  assert.deepEqual(others, ['session.resume', 'session.events', 'pty.open', 'pty.input', 'pty.resize', 'pty.close'])
})
