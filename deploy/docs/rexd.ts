import type { FieldTable, JsonField, Kind } from '../../src/protocol/json-table.ts'
import { METHODS, type Method } from '../../src/protocol/rexd/methods.ts'
import { EVENTS, type EventName, RESULTS } from '../../src/protocol/rexd/results.ts'
import type { Section } from './fill.ts'
import { code, table } from './table.ts'

const PURPOSES: Readonly<Record<Method, string>> = {
  'session.open': 'Opens a session.',
  'session.resume': 'Continues a session over another connection. The events after `cursor` follow.',
  'session.events': 'Returns events after `cursor`, and waits `timeout_ms` for one (0 to 60000).',
  'session.close': 'Ends the session and its programs.',
  'session.info': 'Describes the session.',
  'exec.start': 'Starts a command.',
  'exec.wait': 'Waits for the end of a process.',
  'exec.kill': 'Sends a signal. `ok` false means that the process had ended.',
  'exec.input': 'Writes to stdin.',
  'pty.open': 'Starts a command on a terminal.',
  'pty.input': 'Writes to the terminal.',
  'pty.resize': 'Changes the size of the terminal.',
  'pty.close': 'Sends SIGHUP to all processes of the terminal.',
  'fs.read': 'Reads a file.',
  'fs.write': 'Writes a file.',
  'fs.list': 'Lists a directory.',
  'fs.glob': 'Finds paths by a pattern.',
  'fs.stat': 'Describes a path. A missing path has `exists` false.',
  'fs.edit': 'Replaces a text in a file.',
  'fs.patch': 'Changes several files, all or none.',
}

/** Records whose members the tables list. */
const WITH_MEMBERS = ['entries', 'moved', 'ran_on']

const membersOf = (kind: Kind): readonly string[] => {
  if (kind.is === 'list' || kind.is === 'null_or') return membersOf(kind.of)
  return kind.is === 'record' ? Object.keys(kind.fields) : []
}

const shown = ([name, { kind }]: readonly [string, JsonField<unknown, never>]): string =>
  WITH_MEMBERS.includes(name) ? `${code(name)} (${membersOf(kind).map(code).join(', ')})` : code(name)

/** The fields of an answer or event, the optional ones last. */
const fieldsIn = (fields: FieldTable, without: readonly string[] = []): string => {
  const all = Object.entries(fields).filter(([name]) => !without.includes(name)) as [string, JsonField<unknown, never>][]
  const [always, sometimes] = [false, true].map((isOptional) =>
    all.filter(([, { presence }]) => ((presence as string) === 'optional') === isOptional).map(shown),
  ) as [string[], string[]]
  return [always, sometimes.length > 0 ? [`optional ${sometimes.join(', ')}`] : []].flat().join(', ')
}

const answerOf = (method: Method): string => {
  const fields = RESULTS[method]
  if (method === 'session.resume') return `as \`session.info\`, with ${fieldsIn(fields, Object.keys(RESULTS['session.info']))}`
  if (method === 'pty.open') return `${fieldsIn(fields, ['ran_on', 'cut_wishes'])}, optional as \`exec.start\``
  return fieldsIn(fields)
}

const methods = (): string =>
  table(
    ['method', 'purpose', 'answer'],
    (Object.keys(METHODS) as Method[]).map((method) => {
      return [code(method), PURPOSES[method], answerOf(method)]
    }),
  )

const EVENT_MEANINGS: Readonly<Record<EventName, string>> = {
  'exec.stdout': 'Output of a process.',
  'exec.stderr': 'Error output of a process.',
  'exec.exit': 'The last event of a process that ran.',
  'exec.error': 'The process could not start (no `exec.exit` follows), was ended by `fail_on_limit`, or its end is unknown.',
  'exec.waiting': 'A command waits for an approval. The call with the ID `call` has no answer yet.',
  'pty.output': 'Output of a terminal.',
  'pty.exit': 'The last event of a process on a terminal.',
  'session.gap': 'Events from `from` to `to` are no longer stored.',
}

/** `cursor` is in every event of a session with stored events. */
const events = (): string =>
  table(
    ['event', 'params', 'meaning'],
    (Object.keys(EVENTS) as EventName[]).map((event) => [code(event), fieldsIn(EVENTS[event], ['cursor']), EVENT_MEANINGS[event]]),
  )

type Own<M extends Method> = Exclude<keyof (typeof METHODS)[M], 'session_id'> & string
type Texts<M extends Method> = Readonly<Record<Own<M>, string>>

const OPEN: Texts<'session.open'> = {
  client_name: '1 to 64 bytes. A label for the audit log, not an identity.',
  client_version: 'At most 64 characters. Not used.',
  target: 'Mesh agent of `security.allow_targets`. See [Targets](#targets).',
  workspace_roots:
    'At most 64 directories below the configured roots. Default: all roots. Commands start in the first one. Directories outside or missing are left out; if none is left, the call fails.',
  requested_capabilities: 'Default: all that are granted. Not granted ones are left out. Unknown ones are `-32007`.',
  limits: 'Lower limits for this session. Higher ones are `-32008`. See [Capabilities and limits](#capabilities-and-limits).',
  resumable: 'true: if the connection is lost, the session waits 60 seconds for `session.resume`. WebSocket only.',
}

const START: Texts<'exec.start'> = {
  argv: 'Program and arguments, 1 to 1024 tokens. The program is a name to find in `security.path`, or an absolute path. No token is interpreted.',
  command: 'Text for `/bin/sh -c`, with `shell: true`, instead of `argv`.',
  shell: 'true: run `command` in a shell. Needs `exec.shell`.',
  login: 'true: run through a login shell, which reads the profiles of the user. Needs `exec.shell`.',
  cwd: 'Directory below a root. Default: the first root.',
  env: 'At most 256 variables of `security.allow_env`, in addition to the [environment](#environment).',
  timeout_ms: '0 or absent: `default_timeout_ms`. Reduced to `hard_timeout_ms`; the answer has the time in force.',
  max_output_bytes: 'Reduced to the limit of the session; the answer has the amount in force.',
  host: '`sandbox`, `gateway` or `node`. Only with `[tools.exec]`; else `-32007`. See [modes.md](modes.md).',
  node: 'With `host` `node`: ID, name or address of the mesh agent.',
  security: 'Can only narrow the configured mode.',
  ask: 'Can only narrow the configured mode.',
  tell_waiting: 'true: receive `exec.waiting`. Only if the server has `tells_waiting`.',
  stdin: 'At most 1 MiB. Without it and `stdin_open`, stdin is `/dev/null`.',
  stdin_encoding: '`utf8` or `base64`.',
  stdin_open: 'true: more stdin follows by `exec.input`.',
  fail_on_limit: 'true: output above the limit ends the command and is an error.',
  detach: 'true: the command continues after the session. See [Detached commands](#detached-commands).',
}

const OTHERS: { readonly [M in Exclude<Method, 'session.open' | 'exec.start' | 'session.close' | 'session.info'>]: Partial<Texts<M>> } = {
  'session.resume': { resume_token: 'From `session.open`.', cursor: 'Of the last received event.' },
  'session.events': { cursor: 'Of the last received event.', timeout_ms: 'Time to wait for an event, 0 to 60000.' },
  'exec.wait': { process_id: 'The process.', timeout_ms: 'Time to wait. Default: no limit. 0: do not wait.' },
  'exec.kill': { process_id: 'The process.', signal: '`TERM KILL INT HUP QUIT USR1 USR2 STOP CONT`, with or without `SIG`.' },
  'exec.input': {
    process_id: 'The process.',
    data: 'At most 1 MiB.',
    encoding: '`utf8` or `base64`.',
    eof: 'true: end stdin after `data`.',
  },
  'pty.open': { cols: 'Width; other fields as `exec.start`.', rows: 'Height.' },
  'pty.input': { pty_id: 'The terminal.', data: 'Text to type.', encoding: '`utf8` or `base64`.' },
  'pty.resize': { pty_id: 'The terminal.', cols: 'Width.', rows: 'Height.' },
  'pty.close': { pty_id: 'The terminal.', kill: 'true: SIGKILL after 5 seconds.' },
  'fs.read': {
    path: 'The file.',
    offset: 'First byte.',
    length: 'Maximum bytes. Default: `max_file_read_bytes`.',
    encoding: '`utf8` or `base64`.',
  },
  'fs.write': {
    path: 'The file.',
    content: 'At most 2 MiB.',
    encoding: '`utf8` or `base64`.',
    mode: '`create` fails if the path exists; `replace`; `append`.',
    mkdir_parents: 'true: create missing directories.',
    atomic: 'true: replace the file by a new one if that keeps all rights.',
    expected_mtime: '`mtime` or `mtime_ms` of an answer. If the file changed since, nothing is done.',
  },
  'fs.list': { path: 'The directory.', recursive: 'true: at most 64 levels.', max_entries: 'Default and maximum: 10000.' },
  'fs.glob': { pattern: 'See [Patterns](#patterns).', cwd: 'Default: the first root.', max_matches: 'Default and maximum: 10000.' },
  'fs.stat': { path: 'Links are not followed.' },
  'fs.edit': {
    path: 'The file.',
    old_string: 'Must occur exactly once. Empty: the whole file, which is created if missing.',
    new_string: 'The new text.',
    replace_all: 'true: replace every occurrence.',
    expected_mtime: 'As `fs.write`.',
  },
  'fs.patch': { patch_text: 'At most 2 MiB and 200,000 lines. See [Patches](#patches).', cwd: 'Default: the first root.' },
}

const defaultOf = (method: Method, name: string): string => {
  const { presence, byDefault } = (METHODS[method] as FieldTable)[name] as JsonField<unknown, never>
  if ((presence as string) === 'required') return 'required'
  return byDefault === undefined || typeof byDefault === 'object' ? '' : code(String(byDefault))
}

const fieldTable = (method: Method, texts: Readonly<Record<string, string>>): string =>
  table(
    ['field', 'default', 'meaning'],
    Object.entries(texts).map(([name, text]) => [code(name), defaultOf(method, name), text]),
  )

/** The fields of all other methods. */
const otherFields = (): string =>
  table(
    ['method', 'field', 'default', 'meaning'],
    (Object.entries(OTHERS) as [Method, Readonly<Record<string, string>>][]).flatMap(([method, texts]) =>
      Object.entries(texts).map(([name, text], at) => [at === 0 ? code(method) : '', code(name), defaultOf(method, name), text]),
    ),
  )

/** Sections of docs/rexd.md. */
export const REXD_SECTIONS: Readonly<Record<string, Section>> = {
  'rexd-methods': methods,
  'rexd-open': () => fieldTable('session.open', OPEN),
  'rexd-start': () => fieldTable('exec.start', START),
  'rexd-fields': otherFields,
  'rexd-notifications': events,
}
