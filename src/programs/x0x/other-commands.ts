import type { Environment } from '../../base/environment.ts'
import { VERSION } from '../../base/version.ts'
import type { CommandPath } from '../../command-line/command.ts'
import { helpText } from '../../command-line/help.ts'
import { givenOptions, NONE_GIVEN, type GivenOptions } from '../../base/hint.ts'
import { parseCommandLine, type CommandLine } from '../../command-line/parse.ts'
import { X0X } from '../../command-line/x0x.ts'
import { carriedCommand } from './carried-command.ts'
import type { RunWords } from './commands/find-run.ts'
import { contextOf, type CliContext, type CliIo } from './context.ts'
import { exitStatusOf, reportFailure, usageError } from './failure.ts'
import { outcomeLines } from './outcome.ts'
import { noteUnsentStdin } from './unsent-stdin.ts'
import type { Decision } from '../../protocol/question.ts'
import { write } from '../../supervision/program-output.ts'

/** Answers the exit status. */
type Command = (context: CliContext, line: CommandLine) => Promise<number>

/** Loaded by a plain `exec` that needs them. */
export { exitStatusOf, noteUnsentStdin, outcomeLines, reportFailure }

const NO_STDIN = 'a detached run has none'

const notingStdin = async (context: CliContext, ended: Promise<number>, hint: string): Promise<number> => {
  const status = await ended
  await noteUnsentStdin(context, hint)
  return status
}

const pin =
  (action: 'pin' | 'unpin'): Command =>
  async (context, { words: [name = '', machine = ''] }) =>
    (await import('./commands/contacts.ts')).runContactsPin(context, action, name, machine)

const diagnostics =
  (what: 'exec' | 'dm' | 'mesh'): Command =>
  async (context) =>
    (await import('./commands/diagnostics.ts')).runDiagnostics(context, what)

const transcriptsPrint: Command = async (context, line) =>
  (await import('./commands/transcripts.ts')).runTranscriptsPrint(context, {
    dir: line.value('dir'),
    name: line.words[0] ?? null,
    follow: line.command === 'transcripts follow' || line.has('follow'),
  })

const decide =
  (decision: Decision): Command =>
  async (context, line) => {
    const { lastingOf, runDecide } = await import('./commands/approvals.ts')
    const lasting = lastingOf(line.value('for'), line.value('uses'))
    return runDecide(context, { id: line.words[0] ?? '', decision, permit: line.value('permit'), yes: line.has('yes'), lasting })
  }

const allowlist =
  (change: 'allowlist_add' | 'allowlist_remove'): Command =>
  async (context, line) => {
    const [agent = '', pattern = ''] = line.words
    const opaque = change === 'allowlist_add' && line.has('opaque')
    return (await import('./commands/approvals.ts')).runAllowlist(context, change, { agent, pattern, opaque })
  }

const execMode =
  (what: 'list' | 'show' | 'set' | 'off' | 'save' | 'words'): Command =>
  async (context, line) => {
    const { runExecMode } = await import('./commands/exec-mode.ts')
    const [agent, session] = [line.value('agent'), line.value('session')]
    return runExecMode(context, what, { words: line.words, agent, session, saved: line.has('saved') })
  }

const runsOf = (line: CommandLine): RunWords => ({ ids: line.words, session: line.value('session') })

/** Every command but `exec` itself, by its words; each loads what it needs and nothing of another. */
export const OTHER_COMMANDS: Readonly<Record<string, Command>> = {
  'exec sessions': async (context, line) => {
    const { runIncoming, runSessions } = await import('./commands/exec-sessions.ts')
    return line.has('incoming') ? runIncoming(context) : runSessions(context)
  },
  'exec cancel': async (context, line) => {
    const { runCancel, runCancelIncoming } = await import('./commands/exec-sessions.ts')
    const [id = ''] = line.words
    return line.has('incoming') ? runCancelIncoming(context, id, line.value('agent')) : runCancel(context, id)
  },
  // A plain one is run without this file.
  exec: async (context, line) => {
    const id = line.value('cancel')
    if (id !== null) return (await import('./commands/exec-sessions.ts')).runCancel(context, id)
    if (line.has('detach')) return notingStdin(context, (await import('./commands/detach.ts')).runDetached(context, line), NO_STDIN)
    const ended = (await import('./fleet/fleet-command.ts')).runFleet(context, line)
    return line.has('stdin-file') ? ended : notingStdin(context, ended, '--stdin-file - sends it')
  },
  runs: async (context, line) =>
    (await import('./commands/runs.ts')).runRuns(context, { refresh: line.has('refresh'), session: line.value('session') }),
  'runs wait': async (context, line) => (await import('./commands/runs.ts')).runWait(context, runsOf(line), line.value('timeout')),
  'runs cancel': async (context, line) => (await import('./commands/runs.ts')).runCancelDetached(context, runsOf(line)),
  'runs forget': async (context, line) => (await import('./commands/runs.ts')).runForget(context, runsOf(line), line.has('here')),
  attach: async (context, line) => {
    const { runAttach } = await import('./commands/attach.ts')
    const [id = ''] = line.words
    const attached = runAttach(context, { id, from: line.value('from') ?? '', follow: !line.has('no-follow'), raw: line.has('raw') })
    return notingStdin(context, attached, NO_STDIN)
  },
  id: async (context) => (await import('./commands/identity.ts')).runId(context),
  'id revoke': async (context, line) =>
    (await import('./commands/identity.ts')).runRevoke(context, { machine: line.value('machine'), yes: line.has('yes') }),
  'keys rotate': async (context, line) => (await import('./commands/keys.ts')).runRotate(context, { yes: line.has('yes') }),
  'keys rotate-token': async (context, { words: [which = 'api-token'] }) =>
    (await import('./commands/keys.ts')).runRotateToken(context, which),
  card: async (context) => (await import('./commands/identity.ts')).runCard(context),
  'contacts list': async (context) => (await import('./commands/contacts.ts')).runContactsList(context),
  'contacts import': async (context, line) =>
    (await import('./commands/contacts.ts')).runContactsImport(context, line.words.join(''), {
      name: line.value('as'),
      rename: line.has('rename'),
      trust: line.value('trust'),
    }),
  'contacts trust': async (context, { words: [name = '', level = ''] }) =>
    (await import('./commands/contacts.ts')).runContactsTrust(context, name, level),
  'contacts pin': pin('pin'),
  'contacts unpin': pin('unpin'),
  'contacts label': async (context, { words: [name = '', ...labels] }) =>
    (await import('./commands/labels.ts')).runContactsLabel(context, name, labels),
  'contacts select': async (context, line) =>
    (await import('./commands/labels.ts')).runContactsSelect(context, line.words, line.has('fold')),
  'contacts remove': async (context, { words: [name = ''] }) => (await import('./commands/contacts.ts')).runContactsRemove(context, name),
  init: async (context, line) => {
    const { runInit } = await import('./commands/init.ts')
    const either = (yes: string, no: string): boolean | null => (line.has(yes) ? true : line.has(no) ? false : null)
    const [reachable, service] = [either('reachable', 'only-asks'), either('service', 'user')]
    return runInit(context, { as: line.value('as'), reachable, service, dryRun: line.has('dry-run') })
  },
  invite: async (context, line) => {
    const { runInvite } = await import('./commands/invite.ts')
    return runInvite(context, line.words[0] ?? '', line.behindDashes === null ? null : carriedCommand(line, 1))
  },
  join: async (context, line) => (await import('./commands/invite.ts')).runJoin(context, line.words.join(''), line.value('as')),
  'trust evaluate': async (context, { words: [agent = '', machine = ''] }) =>
    (await import('./commands/trust.ts')).runTrustEvaluate(context, agent, machine),
  ping: async (context, line) =>
    (await import('./commands/ping.ts')).runPing(context, line.words[0] ?? '', {
      count: line.value('count') ?? '',
      interval: line.value('interval') ?? '',
    }),
  doctor: async (context, line) => {
    const { runDoctor } = await import('./commands/doctor.ts')
    return runDoctor(context, { agent: line.words[0] ?? '', argv: line.behindDashes === null ? null : carriedCommand(line, 1) })
  },
  peers: async (context, line) => (await import('./commands/peers.ts')).runPeers(context, { graph: line.has('graph') }),
  'direct send': async (context, line) =>
    (await import('./commands/direct.ts')).runDirectSend(context, line.words[0] ?? '', {
      text: line.words[1] ?? null,
      contentType: line.value('content-type') ?? '',
    }),
  'direct listen': async (context) => (await import('./commands/direct.ts')).runDirectListen(context),
  events: async (context, line) => {
    const { runEvents, sinceOf } = await import('./commands/events.ts')
    const [since, session] = [sinceOf(line.value('since')), line.value('session')]
    return runEvents(context, { follow: line.has('follow'), since, session })
  },
  'diagnostics exec': diagnostics('exec'),
  'diagnostics dm': diagnostics('dm'),
  'diagnostics mesh': diagnostics('mesh'),
  routes: async (context) => (await import('./commands/diagnostics.ts')).runRoutes(context),
  'acl check': async (context, { words: [file = null] }) => (await import('./commands/acl.ts')).runAclCheck(context, file),
  'acl explain': async (context, line) => {
    const [agent, machine] = [line.value('agent'), line.value('machine')]
    const { runAclExplain, runAclExplainLast } = await import('./commands/acl-explain.ts')
    const [file = null] = line.words
    if (line.has('last') && line.behindDashes === null) return runAclExplainLast(context, file, agent)
    if (line.has('last')) throw usageError('--last takes the command from the audit log: leave out the words after "--"')
    if (agent === null || machine === null) throw usageError('name the requester: --agent ID --machine ID, or --last for the last denial')
    return runAclExplain(context, { file, agent, machine, argv: carriedCommand(line, 1), detach: line.has('detach') })
  },
  'acl diff': async (context, { words: [old = null, next = null] }) =>
    (await import('./commands/acl-diff.ts')).runAclDiff(context, old, next),
  'acl suggest': async (context, line) =>
    (await import('./commands/acl-suggest.ts')).runAclSuggest(context, { request: line.value('request'), agent: line.value('agent') }),
  'acl mine': async (context, { words: [agent = ''] }) => (await import('./commands/acl-mine.ts')).runAclMine(context, agent),
  'audit tail': async (context, line) =>
    (await import('./commands/audit.ts')).runAuditTail(context, {
      file: line.words[0] ?? null,
      lines: line.value('lines') ?? '',
      follow: line.has('follow'),
      outgoing: line.has('outgoing'),
    }),
  'audit timeline': async (context, line) =>
    (await import('./commands/audit-timeline.ts')).runAuditTimeline(context, {
      file: line.words[0] ?? null,
      count: line.value('count') ?? '',
    }),
  'audit verify': async (context, line) =>
    (await import('./commands/audit.ts')).runAuditVerify(context, {
      files: line.words,
      continued: line.has('continued'),
      outgoing: line.has('outgoing'),
      agent: line.value('agent'),
    }),
  'approvals pending': async (context) => (await import('./commands/approvals.ts')).runPending(context),
  'approvals approve': decide('allow_once'),
  'approvals deny': decide('deny'),
  'approvals allow-always': decide('allow_always'),
  'approvals list': async (context) => (await import('./commands/approvals.ts')).runList(context),
  'approvals revoke': async (context, { words: [id = ''] }) => (await import('./commands/approvals.ts')).runRevokeGrant(context, id),
  'approvals allowlist add': allowlist('allowlist_add'),
  'approvals allowlist remove': allowlist('allowlist_remove'),
  'approvals history': async (context, line) => (await import('./commands/approvals.ts')).runHistory(context, line.value('lines') ?? ''),
  'approvals watch': async (context, line) =>
    (await import('./commands/approvals-watch.ts')).runWatch(context, { bell: line.has('bell'), notify: line.has('notify') }),
  'exec-mode': execMode('words'),
  'exec-mode list': execMode('list'),
  'exec-mode show': execMode('show'),
  'exec-mode set': execMode('set'),
  'exec-mode off': execMode('off'),
  'exec-mode save': execMode('save'),
  'transcripts list': async (context, line) =>
    (await import('./commands/transcripts.ts')).runTranscriptsList(context, { dir: line.value('dir'), count: line.value('count') ?? '' }),
  'transcripts print': transcriptsPrint,
  'transcripts follow': transcriptsPrint,
  'transcripts search': async (context, line) =>
    (await import('./commands/transcripts.ts')).runTranscriptsSearch(context, {
      dir: line.value('dir'),
      text: line.words[0] ?? '',
      name: line.words[1] ?? null,
      ignoreCase: line.has('ignore-case'),
      count: line.value('count') ?? '',
    }),
  'transcripts remove': async (context, line) =>
    (await import('./commands/transcripts.ts')).runTranscriptsRemove(context, line.value('dir'), line.words),
  'transcripts export': async (context, line) =>
    (await import('./commands/transcripts.ts')).runTranscriptsExport(context, {
      dir: line.value('dir'),
      name: line.words[0] ?? '',
      format: line.value('format'),
    }),
  replay: async (context, { words: [file = ''] }) => (await import('./commands/replay.ts')).runReplay(context, file),
  completion: async (context, { words: [what = ''], behindDashes }) =>
    (await import('./commands/completion.ts')).runCompletion(context, what, behindDashes ?? []),
  version: async (context) => (await import('./commands/version.ts')).runVersion(context),
  man: async (context, line) =>
    (await import('./commands/manual.ts')).runMan(context, line.words[0] ?? 'x0x', { markdown: line.has('markdown') }),
}

/** Runs a line that is no plain `exec`. Its failures begin and end in this bundle: in another our errors are another class. */
export const runOther = async (io: CliIo, env: Environment, argv: readonly string[]): Promise<number> => {
  const dashes = argv.indexOf('--')
  const json = (dashes === -1 ? argv : argv.slice(0, dashes)).includes('--json')
  let given: GivenOptions = NONE_GIVEN
  try {
    const parsed = parseCommandLine(X0X, argv, (problem, command) => usageError(problem, `how to use it: ${command} --help`))
    if (parsed.kind === 'help') return await printHelp(io, parsed)
    if (parsed.kind === 'version') {
      await write(io.stdout, `${VERSION}\n`)
      return 0
    }
    const { line } = parsed
    given = givenOptions('x0x', line)
    const run = OTHER_COMMANDS[line.command]
    if (run === undefined) throw new Error(`${line.command} is in the table, and nothing runs it`)
    return await run(contextOf(io, env, line), line)
  } catch (error) {
    await reportFailure({ stdout: io.stdout, stderr: io.stderr, given, json }, error)
    return exitStatusOf(error)
  }
}

/** The command line makes no sense. */
const EXIT_USAGE = 2

/** Help that nobody asked for goes to standard error. */
const printHelp = async (io: CliIo, { path, asked }: { readonly path: CommandPath; readonly asked: boolean }): Promise<number> => {
  await write(asked ? io.stdout : io.stderr, helpText(path, io.stdout.columns))
  return asked ? 0 : EXIT_USAGE
}
