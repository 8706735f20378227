import { octal } from '../../src/base/format.ts'
import { ALWAYS_ASK_KEYS, MAX_ALWAYS_ASK, MAX_REASON_BYTES } from '../../src/policy/approval/always-ask.ts'
import { DEFAULT_CAPS, DEFAULT_DETACHING, MAX_DETACH_SECS } from '../../src/policy/mesh/acl.ts'
import { ASK_PATTERN_KEYS } from '../../src/policy/mesh/asking-rules.ts'
import { GATES, type Gate } from '../../src/policy/mesh/authorize.ts'
import { MIN_MEMORY_BYTES } from '../../src/policy/mesh/confinement.ts'
import { DEFAULT_MAX_FILE_BYTES, DEFAULT_MODE, FILE_GRANT_KEYS } from '../../src/policy/mesh/file-grants.ts'
import { COMMAND_KEYS, ENTRY_KEYS, EXEC_KEYS } from '../../src/policy/mesh/read-acl.ts'
import { MAX_MESH_APPROVERS } from '../../src/protocol/limits/approvals.ts'
import { MAX_DETACHED_BYTES_PER_AGENT } from '../../src/protocol/limits/detached.ts'
import { MAX_DESCRIPTION_BYTES, MAX_STDIN_BYTES } from '../../src/protocol/limits/wire.ts'
import type { DenialReason } from '../../src/protocol/reasons.ts'
import { code, table } from './table.ts'

/** Default and meaning of a key. An empty default means that the key is not set. */
type Row = readonly [defaultValue: string | number | boolean, meaning: string]
type Rows<Key extends string> = Readonly<Record<Key, Row>>

/** Defaults that are words, not values. */
const PLAIN: readonly unknown[] = ['', 'required', 'all']

const keyTable = <Key extends string>(keys: readonly Key[], rows: Rows<Key>): string =>
  table(
    ['Key', 'Default', 'Meaning'],
    keys.map((key) => {
      const [value, meaning] = rows[key]
      return [code(key), PLAIN.includes(value) ? String(value) : code(String(value)), meaning]
    }),
  )

const EXEC: Rows<(typeof EXEC_KEYS)[number]> = {
  enabled: [false, 'If it is not `true`, every request is denied.'],
  audit_log_path: [
    'required',
    "Absolute path of the audit log. Only root and the daemon's user may be able to write its directory and those above. If the log cannot be written, every request is denied.",
  ],
  default_cwd: [
    '',
    'Absolute path of the directory in which commands start. Default: that in which `x0xd` was started. A requester cannot choose one.',
  ],
  max_stdout_bytes: [DEFAULT_CAPS.max_stdout_bytes, 'Further output is counted and dropped. The command continues.'],
  max_stderr_bytes: [DEFAULT_CAPS.max_stderr_bytes, 'The same for stderr.'],
  max_stdin_bytes: [
    DEFAULT_CAPS.max_stdin_bytes,
    `More is denied. With 0, any stdin is denied and commands read \`/dev/null\`. Maximum: ${MAX_STDIN_BYTES}.`,
  ],
  max_duration_secs: [
    DEFAULT_CAPS.max_duration_secs,
    'Longest duration of a command, and the timeout of a request without one. SIGKILL comes at this time. SIGTERM comes 5 seconds earlier, or at 50 % of a time below 10 seconds.',
  ],
  max_concurrent_per_agent: [
    DEFAULT_CAPS.max_concurrent_per_agent,
    'Commands of one agent at the same time. The default is never above the total.',
  ],
  max_concurrent_total: [DEFAULT_CAPS.max_concurrent_total, 'Commands of all agents at the same time.'],
  warn_stdout_bytes: [
    DEFAULT_CAPS.warn_stdout_bytes,
    'The run gets a warning at this size. At most its limit. If only the limit is set: the lower of this default and 50 % of the limit.',
  ],
  warn_stderr_bytes: [DEFAULT_CAPS.warn_stderr_bytes, 'The same for stderr.'],
  warn_duration_secs: [DEFAULT_CAPS.warn_duration_secs, 'The run gets a warning after this time. At most its limit.'],
  contain: [
    'best_effort',
    '`"required"`: a run is denied if only its process group would hold its processes together. See [config.md](config.md).',
  ],
  allow: ['', 'The entries: one `[[exec.allow]]` block each.'],
  always_ask: ['', 'Commands that a person must allow each time: one `[[exec.always_ask]]` block each.'],
  audit_tasklist_id: ['', 'Reserved. It has no effect.'],
}

const LOWER = 'Limit of this entry. It may only be lower than that of `[exec]`.'

const ENTRY: Rows<(typeof ENTRY_KEYS)[number]> = {
  agent_id: ['required', 'AgentID of the requester: 64 lower-case hex digits.'],
  machine_id: ['required', 'MachineID of the requester. On another machine, the same agent needs another entry.'],
  description: ['allow[N]', `Label for the audit log, at most ${MAX_DESCRIPTION_BYTES} bytes of visible characters. \`N\` counts from 0.`],
  discoverable: [false, '`true`: the requester can list the commands of this entry, with `description`. It allows nothing.'],
  commands: ['required', 'One `[[exec.allow.commands]]` block for each rule. Optional if the entry has `ask_patterns` or `files`.'],
  files: [
    '',
    'Files that the requester may read or write: one `[[exec.allow.files]]` block for each root. See [Files](#keys-of-execallowfiles).',
  ],
  max_stdout_bytes: ['', LOWER],
  max_stderr_bytes: ['', 'The same.'],
  max_stdin_bytes: ['', 'The same.'],
  max_duration_secs: ['', 'The same.'],
  warn_stdout_bytes: ['', 'Warning threshold. Without it, that of `[exec]`, but at most 50 % of a limit that is set here.'],
  warn_stderr_bytes: ['', 'The same.'],
  warn_duration_secs: ['', 'The same.'],
  ask: [
    '',
    '`"always"`: a person on this machine allows each run. `"on-miss"`: only runs that a pattern matches and no rule lists. Without it, neither.',
  ],
  ask_patterns: ['', 'Commands that a person may allow: one `[[exec.allow.ask_patterns]]` block each. Needs `ask`.'],
  approvers: [
    '',
    `Other agents that must allow each run: at most ${MAX_MESH_APPROVERS} of \`{ agent_id = "…" }\`. The requester cannot be one.`,
  ],
  approvals_needed: ['all', 'Number of approvers that must allow a run.'],
  detach: [false, '`true`: the requester may start detached runs. Attached runs do not change.'],
  max_detach_secs: [
    DEFAULT_DETACHING.max_secs,
    `Longest duration of a detached run, in place of \`max_duration_secs\`. Maximum: ${MAX_DETACH_SECS}.`,
  ],
  max_detach_output_bytes: [
    DEFAULT_DETACHING.max_output_bytes,
    `Stored output of a detached run, both streams together. The stream limits apply too. Maximum: ${MAX_DETACHED_BYTES_PER_AGENT}.`,
  ],
  contain: ['', 'As in `[exec]`. An entry may only be stricter.'],
  max_memory_bytes: ['', `Memory of all processes together, without swap. Minimum: ${MIN_MEMORY_BYTES}.`],
  max_processes: ['', 'Processes and threads at the same time.'],
  max_cpu_secs: ['', 'CPU time of each process.'],
  nice: ['', '0 to 19, added to the niceness of the daemon.'],
  run_as: ['', 'A user of `/etc/passwd`, without supplementary groups, with its `HOME`. Not user 0 or group 0.'],
  no_network: [false, '`true`: an empty network namespace, without loopback. Unix sockets in the file system stay reachable.'],
  read_only: [false, '`true`: all mounts are read-only. `/dev` is private; what a command writes there is lost.'],
  umask: ['022', 'Three octal digits as a string, such as `"027"`. A command can change its umask.'],
}

const COMMAND: Rows<(typeof COMMAND_KEYS)[number]> = {
  argv: ['required', 'The tokens of the command. See [How commands match](#how-commands-match).'],
  stdin: [true, '`false`: a request with stdin is denied, and the command reads `/dev/null`.'],
  terminal: [
    false,
    '`true`: the requester may run the command on a terminal and type into it. Most programs are then as good as a shell. See [terminals.md](terminals.md).',
  ],
  record: [
    false,
    '`true`: x0x keeps what each run of the command shows, and runs it only if it can. Needs `terminal = true`. See [Record a command](terminals.md#record-a-command).',
  ],
  watch: [
    false,
    '`true`: operators of this machine may look on while the command runs. Needs `terminal = true`. See [Watch a command](terminals.md#watch-a-command-while-it-runs).',
  ],
}

const FILES: Rows<(typeof FILE_GRANT_KEYS)[number]> = {
  root: ['required', 'Absolute path of a directory, without `/` at its end. The block applies to it and to all below it.'],
  read: [false, '`true`: the requester may read and list files. At least one of `read` and `write` is `true`.'],
  write: [false, '`true`: the requester may create and replace files. It cannot delete them. The keys below need it.'],
  create_dirs: [false, '`true`: the requester may create directories below the root.'],
  max_file_bytes: [DEFAULT_MAX_FILE_BYTES, 'Largest size of a new file.'],
  max_total_bytes: ['', 'Size of all files below the root together. A new file that exceeds it is refused.'],
  mode: [octal(DEFAULT_MODE), 'Permission bits of new files, as octal digits in a string. A requester can only ask for fewer.'],
  owner: ['', 'A user of `/etc/passwd` that owns new files. Needs a daemon that runs as root. Not user 0 or group 0.'],
  ask: [
    false,
    '`true`: a person on this machine allows each change and each file that is read. See [Ask about files](require-approval.md#ask-about-files).',
  ],
}

const ASK_PATTERN: Rows<(typeof ASK_PATTERN_KEYS)[number]> = {
  argv: ['required', 'Tokens as in a command. `<ANY...>` as the last token matches any further arguments, or none.'],
  stdin: [true, 'As in a command.'],
}

const ALWAYS_ASK: Rows<(typeof ALWAYS_ASK_KEYS)[number]> = {
  argv: [
    'required',
    `Tokens that are looked for in the command. See [Commands that always ask](modes.md#commands-that-always-ask). At most ${MAX_ALWAYS_ASK} rules.`,
  ],
  reason: ['required', `Text that the approver reads, at most ${MAX_REASON_BYTES} bytes.`],
}

/** The check of each gate, and the denial if it fails. */
const GATE_ROWS: Readonly<Record<Gate, readonly [check: string, ...denials: readonly DenialReason[]]>> = {
  sender: ['Signature, target and nonce of the request are valid.', 'unverified_sender'],
  trust: ['Trust accepts this agent on this machine.', 'trust_rejected'],
  enabled: ['`enabled` is `true`.', 'exec_disabled'],
  argv: ['The request has a command.', 'argv_not_allowed'],
  pair: ['An entry lists this agent on this machine.', 'agent_machine_not_in_acl'],
  metacharacters: ['No token has a shell metacharacter.', 'shell_metachar_in_argv'],
  command: ['A command or an ask pattern matches. For a file command: a root with this right contains the path.', 'argv_not_allowed'],
  cwd: ['The request names no working directory.', 'cwd_not_allowed'],
  detach: ['For a detached run: the entry allows it, with this much stored output.', 'detach_not_allowed'],
  terminal: ['For a terminal: the command has `terminal = true`.', 'terminal_not_allowed'],
  stdin: ['Stdin is open and within the limit.', 'stdin_too_large'],
  timeout: ['The timeout or lifetime is between 1 ms and the limit.', 'timeout_too_large'],
  slots: ['A concurrency slot is free. A run that waits for approval takes it after the approval.', 'concurrency_limit_reached'],
  executable: [
    "The program exists. Only root and the daemon's user can replace it, the interpreter of its `#!` line or its ELF loader.",
    'spawn_failed',
  ],
  approval: [
    'Each required approver allowed exactly this run.',
    'approval_denied',
    'approval_timeout',
    'approval_unavailable',
    'approval_mismatch',
  ],
}

export const aclSections = {
  'acl-exec-keys': () => keyTable(EXEC_KEYS, EXEC),
  'acl-entry-keys': () => keyTable(ENTRY_KEYS, ENTRY),
  'acl-command-keys': () => keyTable(COMMAND_KEYS, COMMAND),
  'acl-files-keys': () => keyTable(FILE_GRANT_KEYS, FILES),
  'acl-ask-pattern-keys': () => keyTable(ASK_PATTERN_KEYS, ASK_PATTERN),
  'acl-always-ask-keys': () => keyTable(ALWAYS_ASK_KEYS, ALWAYS_ASK),
  'acl-gates': () =>
    table(
      ['Gate', 'Passes if', 'Denial'],
      GATES.map((gate) => {
        const [check, ...denials] = GATE_ROWS[gate]
        return [gate, check, denials.map(code).join(', ')]
      }),
    ),
}
