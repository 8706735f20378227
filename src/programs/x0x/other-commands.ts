import { NONE_GIVEN } from '../../base/hint.ts'
import { type Environment, VERSION } from '../../base/runtime.ts'
import type { CommandPath } from '../../cli/command.ts'
import { helpText } from '../../cli/help.ts'
import { write } from '../../cli/output.ts'
import { type CommandLine, parseCommandLine } from '../../cli/parse.ts'
import { SEND_STDIN } from '../../cli/plain-exec.ts'
import { withoutStdin } from '../../cli/unsent-stdin.ts'
import { X0X } from '../../cli/x0x.ts'
import { type CliContext, type CliIo, contextOf } from './context.ts'
import { askUntilBack } from './draining.ts'
import { exitStatusOf, printProblem, reportFailure, usageError } from './failure.ts'
import { outcomeLines } from './outcome.ts'

/** Returns the exit status. */
type Command = (context: CliContext, line: CommandLine) => Promise<number>

/** A plain `exec` loads these when it needs them. */
export { askUntilBack, exitStatusOf, outcomeLines, printProblem, reportFailure }

/** A command in a file that is loaded when it runs. */
const from =
  <K extends string>(load: () => Promise<Readonly<Record<K, Command>>>, name: K): Command =>
  async (context, line) =>
    (await load())[name](context, line)

const approvals = async () => import('./commands/approvals.ts')
const audit = async () => import('./commands/audit.ts')
const contacts = async () => import('./commands/contacts.ts')
const diagnostics = async () => import('./commands/diagnostics.ts')
const enrol = async () => import('./commands/enrol.ts')
const direct = async () => import('./commands/direct.ts')
const execMode = from(async () => import('./commands/exec-mode.ts'), 'runExecMode')
const identity = async () => import('./commands/identity.ts')
const invite = async () => import('./commands/invite.ts')
const keys = async () => import('./commands/identity.ts')
const labels = async () => import('./commands/contacts.ts')
const runs = async () => import('./commands/runs.ts')
const transcripts = async () => import('./commands/transcripts.ts')

/** Every command except a plain `exec`, by its words. Each loads only what it needs. */
export const OTHER_COMMANDS: Readonly<Record<string, Command>> = {
  'exec sessions': async (context, line) => {
    const { runIncoming, runSessions } = await import('./commands/exec-sessions.ts')
    return line.has('incoming') ? runIncoming(context) : runSessions(context)
  },
  'exec watch': from(async () => import('./commands/exec-watch.ts'), 'runExecWatch'),
  'exec cancel': async (context, line) => {
    const { runCancel, runCancelIncoming } = await import('./commands/exec-sessions.ts')
    const [id = ''] = line.words
    return line.has('incoming') ? runCancelIncoming(context, id, line.value('agent')) : runCancel(context, id)
  },
  // A plain `exec` does not load this file.
  exec: async (context, line) => {
    const id = line.value('cancel')
    if (id !== null) return (await import('./commands/exec-sessions.ts')).runCancel(context, id)
    if (line.has('terminal')) return (await import('./terminal/terminal-command.ts')).runTerminal(context, line)
    if (line.has('detach')) return (await import('./commands/detach.ts')).runDetached(context, line)
    return (await import('./fleet/fleet-command.ts')).runFleet(context, line)
  },
  runs: from(runs, 'runRuns'),
  'runs wait': from(runs, 'runWait'),
  'runs cancel': from(runs, 'runCancelDetached'),
  'runs forget': from(runs, 'runForget'),
  attach: from(async () => import('./commands/attach.ts'), 'runAttach'),
  cp: from(async () => import('./commands/cp.ts'), 'runCp'),
  ls: from(async () => import('./commands/ls.ts'), 'runLs'),
  id: from(identity, 'runId'),
  'id revoke': from(identity, 'runRevoke'),
  'keys rotate': from(keys, 'runRotate'),
  'keys rotate-token': from(keys, 'runRotateToken'),
  card: from(identity, 'runCard'),
  'contacts list': from(contacts, 'runContactsList'),
  'contacts import': from(contacts, 'runContactsImport'),
  'contacts trust': from(contacts, 'runContactsTrust'),
  'contacts pin': from(contacts, 'runContactsPin'),
  'contacts unpin': from(contacts, 'runContactsUnpin'),
  'contacts label': from(labels, 'runContactsLabel'),
  'contacts select': from(labels, 'runContactsSelect'),
  'contacts remove': from(contacts, 'runContactsRemove'),
  'enrol create': from(enrol, 'runEnrolCreate'),
  'enrol list': from(enrol, 'runEnrolList'),
  'enrol revoke': from(enrol, 'runEnrolRevoke'),
  init: from(async () => import('./commands/init.ts'), 'runInit'),
  invite: from(invite, 'runInvite'),
  join: from(invite, 'runJoin'),
  'trust evaluate': from(async () => import('./commands/identity.ts'), 'runTrustEvaluate'),
  ping: from(async () => import('./commands/ping.ts'), 'runPing'),
  doctor: from(async () => import('./commands/doctor.ts'), 'runDoctor'),
  peers: from(async () => import('./commands/peers.ts'), 'runPeers'),
  'direct send': from(direct, 'runDirectSend'),
  'direct listen': from(direct, 'runDirectListen'),
  events: from(async () => import('./commands/events.ts'), 'runEvents'),
  'diagnostics exec': from(diagnostics, 'runDiagnostics'),
  'diagnostics dm': from(diagnostics, 'runDiagnostics'),
  'diagnostics mesh': from(diagnostics, 'runDiagnostics'),
  routes: from(diagnostics, 'runRoutes'),
  'acl check': from(async () => import('./commands/acl.ts'), 'runAclCheck'),
  'acl sign': from(async () => import('./commands/acl-sign.ts'), 'runAclSign'),
  'acl explain': from(async () => import('./commands/acl-explain.ts'), 'runAclExplain'),
  'acl diff': from(async () => import('./commands/acl-diff.ts'), 'runAclDiff'),
  'acl suggest': from(async () => import('./commands/acl-suggest.ts'), 'runAclSuggest'),
  'acl mine': from(async () => import('./commands/acl-mine.ts'), 'runAclMine'),
  'audit tail': from(audit, 'runAuditTail'),
  'audit timeline': from(async () => import('./commands/audit.ts'), 'runAuditTimeline'),
  'audit verify': from(audit, 'runAuditVerify'),
  'approvals pending': from(approvals, 'runPending'),
  'approvals approve': from(approvals, 'runApprove'),
  'approvals deny': from(approvals, 'runDeny'),
  'approvals allow-always': from(approvals, 'runAllowAlways'),
  'approvals list': from(approvals, 'runList'),
  'approvals revoke': from(approvals, 'runRevokeGrant'),
  'approvals allowlist add': from(approvals, 'runAllowlist'),
  'approvals allowlist remove': from(approvals, 'runAllowlist'),
  'approvals history': from(approvals, 'runHistory'),
  'approvals watch': from(async () => import('./commands/approvals-watch.ts'), 'runWatch'),
  'exec-mode': execMode,
  'exec-mode list': execMode,
  'exec-mode show': execMode,
  'exec-mode set': execMode,
  'exec-mode off': execMode,
  'exec-mode save': execMode,
  'transcripts list': from(transcripts, 'runTranscriptsList'),
  'transcripts print': from(transcripts, 'runTranscriptsPrint'),
  'transcripts play': from(async () => import('./commands/recordings.ts'), 'runRecordingsPlay'),
  'transcripts follow': from(transcripts, 'runTranscriptsPrint'),
  'transcripts search': from(transcripts, 'runTranscriptsSearch'),
  'transcripts remove': from(transcripts, 'runTranscriptsRemove'),
  'transcripts export': from(transcripts, 'runTranscriptsExport'),
  replay: from(async () => import('./commands/replay.ts'), 'runReplay'),
  completion: from(async () => import('./commands/completion.ts'), 'runCompletion'),
  version: from(async () => import('./commands/diagnostics.ts'), 'runVersion'),
  man: from(async () => import('./commands/completion.ts'), 'runMan'),
}

/** Whether the command of the line could be meant to read standard input, which the line does not send. */
const leavesStdin = (line: CommandLine): boolean => {
  if (line.command === 'attach') return true
  return line.command === 'exec' && !['cancel', 'terminal', 'stdin-file'].some((option) => line.has(option))
}

const runCommand = async (run: Command, context: CliContext, line: CommandLine, argv: readonly string[]): Promise<number> => {
  const { ownsStdin, stderr, quiet } = context
  if (ownsStdin !== true || !leavesStdin(line)) return run(context, line)
  const send = line.command === 'attach' || line.has('detach') ? null : SEND_STDIN
  return withoutStdin({ program: 'x0x', argv, send, stderr, quiet }, async () => run(context, line))
}

/** Runs a line that is not a plain `exec`. It reports its own failures, because the error class of another bundle differs. */
export const runOther = async (io: CliIo, env: Environment, argv: readonly string[]): Promise<number> => {
  const dashes = argv.indexOf('--')
  const json = (dashes === -1 ? argv : argv.slice(0, dashes)).includes('--json')
  let given = NONE_GIVEN
  try {
    const parsed = parseCommandLine(X0X, argv, (problem, command) => usageError(problem, `See: ${command} --help`))
    if (parsed.kind === 'help') return await printHelp(io, parsed)
    if (parsed.kind === 'version') {
      await write(io.stdout, `${VERSION}\n`)
      return 0
    }
    const { line } = parsed
    given = line.given
    const run = OTHER_COMMANDS[line.command]
    if (run === undefined) throw new Error(`${line.command} is in the table, and nothing runs it`)
    return await runCommand(run, contextOf(io, env, line), line, argv)
  } catch (error) {
    await reportFailure({ stdout: io.stdout, stderr: io.stderr, given, json }, error)
    return exitStatusOf(error)
  }
}

const EXIT_USAGE = 2

/** Help for an incomplete line goes to standard error. */
const printHelp = async (io: CliIo, { path, asked }: { readonly path: CommandPath; readonly asked: boolean }): Promise<number> => {
  await write(asked ? io.stdout : io.stderr, helpText(path, io.stdout.columns))
  return asked ? 0 : EXIT_USAGE
}
