import { Command, Option } from 'commander'

import type { CliContext, GlobalOptions } from './context.ts'
import { usageError } from './failure.ts'

/** What the program needs from outside: a context made from the global options, and a place for the exit status. */
export interface ProgramInit {
  readonly version: string
  readonly context: (options: GlobalOptions) => CliContext
  readonly done: (status: number) => void
  /** The words behind `--`, or null where there was none: only those are a remote command. */
  readonly behindDashes: readonly string[] | null
}

/** Runs one command; its modules are loaded only then, so that no command pays for another. */
type Run = (work: (context: CliContext) => Promise<number>) => Promise<void>

const HELP = `
Examples:
  x0x id                                        who this daemon is
  x0x card                                      a link for the other side:  x0x contacts import LINK --as laptop
  x0x contacts trust laptop trusted             then pin it:  x0x contacts pin laptop MACHINE
  x0x exec saorsa-7 -- systemctl status x0xd    run a command there; its ACL must allow exactly this
  x0x diagnostics exec                          what was run, denied and cut here
  x0x rexd --help                               commands, files and terminals for programs, over stdio, ssh and sockets

Every command takes --json. Exit status of exec: the remote command's own; 128+n when a signal
ended it; 255 when it was denied, not reached, or ended by a limit. 2: the command line is wrong.`

export const buildProgram = (init: ProgramInit): Command => {
  const program = new Command('x0x')
  const run: Run = async (work) => init.done(await work(init.context(program.opts<GlobalOptions>())))
  program
    .description('Run strictly allowlisted commands on other machines over a peer-to-peer mesh.')
    .addOption(new Option('--name <name>', 'the daemon with this name (data in ~/.x0x-NAME)'))
    .addOption(new Option('--data-dir <dir>', 'the daemon with this data directory'))
    .addOption(new Option('--api <url>', 'an API elsewhere, such as http://127.0.0.1:12700; its token in X0X_API_TOKEN'))
    .addOption(new Option('--json', 'print one JSON object'))
    .version(init.version, '--version', 'print the version')
    .helpOption('-h, --help', 'show this help')
    .helpCommand(false)
    .showSuggestionAfterError(true)
    .addHelpText('after', HELP)
  addExec(program, run, init.behindDashes)
  addIdentity(program, run)
  addContacts(program, run)
  addMesh(program, run)
  addAcl(program, run, init.behindDashes)
  addAudit(program, run)
  return program
}

/** `words` are all that follow the agent or the file. */
const commandWords = (words: readonly string[], behindDashes: readonly string[] | null): readonly string[] => {
  const next = 'the command stands behind two dashes, word by word, such as: -- echo 42'
  if (behindDashes === null || behindDashes.length === 0) throw usageError('no command given', next)
  if (words.length === behindDashes.length) return behindDashes
  throw usageError(`${JSON.stringify(words[0])} stands before the two dashes and is no part of the command`, next)
}

interface ExecFlags {
  readonly timeout?: string
  readonly stdinFile?: string
  readonly cancel?: string
  readonly raw?: boolean
}

const addExec = (program: Command, run: Run, behindDashes: readonly string[] | null): void => {
  const exec = program
    .command('exec')
    .summary('run a command on an agent')
    .description('Runs a command on another agent and streams its output. AGENT: a contact, an id, or its first 6 or more characters.')
    .usage('AGENT [options] -- ARGV...')
    .argument('[agent]')
    .argument('[argv...]')
    .option('--timeout <secs>', 'end the command after this time; clamped to the cap there')
    .option('--stdin-file <file>', 'give the command this stdin; - reads our own to its end')
    .option('--cancel <id>', 'cancel this run instead; needs no AGENT')
    .option('--raw', 'control characters to the terminal as they come')
    .addHelpText('after', EXEC_HELP)
    .action(async (agent: string | undefined, words: string[], flags: ExecFlags) =>
      run(async (context) => {
        if (flags.cancel !== undefined) return (await import('./commands/exec-sessions.ts')).runCancel(context, flags.cancel)
        if (agent === undefined) throw usageError('no agent given', 'x0x exec AGENT -- ARGV...')
        const argv = commandWords(words, behindDashes)
        const { timeout = null, stdinFile = null, raw = false } = flags
        return (await import('./commands/exec.ts')).runExec(context, { agent, argv, timeout, stdinFile, raw })
      }),
    )
  exec
    .command('sessions')
    .description('commands that this daemon asked for and that have not ended')
    .action(async () => run(async (context) => (await import('./commands/exec-sessions.ts')).runSessions(context)))
  exec
    .command('cancel')
    .description('end one of them')
    .argument('<id>')
    .action(async (id: string) => run(async (context) => (await import('./commands/exec-sessions.ts')).runCancel(context, id)))
}

const EXEC_HELP = `
Examples:
  x0x exec bob -- echo 42
  x0x exec bob --timeout 30 -- journalctl -u x0xd -n 100
  x0x exec bob --stdin-file payload.bin -- sha256sum
  tar c . | x0x exec bob --stdin-file - -- sha256sum
  x0x exec bob --json -- x0x diagnostics exec
Ctrl-C cancels the remote command and waits for its end; a second Ctrl-C does not wait.`

const addIdentity = (program: Command, run: Run): void => {
  const id = program
    .command('id')
    .description('who this daemon is: agent, machine, name')
    .action(async () => run(async (context) => (await import('./commands/identity.ts')).runId(context)))
  id.command('revoke')
    .description('declare this agent, or its presence on one machine, void for ever')
    .option('--machine <id>', 'only on this machine')
    .option('--yes', 'yes, for ever')
    .action(async ({ machine, yes = false }: { machine?: string; yes?: boolean }) =>
      run(async (context) => (await import('./commands/identity.ts')).runRevoke(context, { machine: machine ?? null, yes })),
    )
  program
    .command('card')
    .description("print this agent's card: a signed link for x0x contacts import on the other side")
    .action(async () => run(async (context) => (await import('./commands/identity.ts')).runCard(context)))
}

const addContacts = (program: Command, run: Run): void => {
  const contacts = program
    .command('contacts')
    .description('who we know, how far we trust them, and on which machines')
    .addHelpText(
      'after',
      '\nExamples:\n  x0x contacts import x0x://agent/… --as laptop\n  x0x contacts trust laptop trusted\n  x0x contacts pin laptop 6e1f…\n  ssh laptop x0x card | x0x contacts import - --as laptop',
    )
  contacts
    .command('list')
    .description('all of them')
    .action(async () => run(async (context) => (await import('./commands/contacts.ts')).runContactsList(context)))
  contacts
    .command('import')
    .description('verify a card and keep it; never changes the trust or the pins of a contact we have')
    .argument('<link>', 'x0x://agent/…, or - for standard input')
    .option('--as <name>', 'our name for it (default: agent- and the beginning of its id)')
    .option('--trust <level>', 'trust level of a new contact (default: unknown)')
    .action(async (link: string, { as: name, trust }: { as?: string; trust?: string }) =>
      run(async (context) =>
        (await import('./commands/contacts.ts')).runContactsImport(context, link, { name: name ?? null, trust: trust ?? null }),
      ),
    )
  contacts
    .command('trust')
    .description('set a trust level: blocked, unknown, known or trusted; exec needs trusted')
    .argument('<name>')
    .argument('<level>')
    .action(async (name: string, level: string) =>
      run(async (context) => (await import('./commands/contacts.ts')).runContactsTrust(context, name, level)),
    )
  for (const action of ['pin', 'unpin'] as const) {
    contacts
      .command(action)
      .description(
        action === 'pin'
          ? 'accept this contact from this machine (and others pinned) only'
          : 'remove a pin; without its last pin a trusted contact is only known',
      )
      .argument('<name>')
      .argument('<machine>', '64 characters, from x0x id on that machine')
      .action(async (name: string, machine: string) =>
        run(async (context) => (await import('./commands/contacts.ts')).runContactsPin(context, action, name, machine)),
      )
  }
  contacts
    .command('remove')
    .description('forget it')
    .argument('<name>')
    .action(async (name: string) => run(async (context) => (await import('./commands/contacts.ts')).runContactsRemove(context, name)))
}

const addMesh = (program: Command, run: Run): void => {
  program
    .command('peers')
    .description('who is connected and who was discovered')
    .action(async () => run(async (context) => (await import('./commands/peers.ts')).runPeers(context)))
  const direct = program
    .command('direct')
    .description('messages between agents')
    .addHelpText('after', '\nExamples:\n  x0x direct send laptop "the build is done"\n  x0x direct listen')
  direct
    .command('send')
    .description('send one message; answers when the other side has it')
    .argument('<agent>')
    .argument('[text]', '- or nothing: standard input')
    .option('--content-type <type>', 'what it is', 'text/plain')
    .action(async (agent: string, text: string | undefined, { contentType }: { contentType: string }) =>
      run(async (context) => (await import('./commands/direct.ts')).runDirectSend(context, agent, { text: text ?? null, contentType })),
    )
  direct
    .command('listen')
    .description('print messages as they come')
    .action(async () => run(async (context) => (await import('./commands/direct.ts')).runDirectListen(context)))
  const diagnostics = program
    .command('diagnostics')
    .description('what the daemon counts')
    .addHelpText('after', '\nExample:\n  x0x diagnostics exec')
  for (const [what, text] of [
    ['exec', 'commands run, denied and cut here'],
    ['dm', 'links and messages'],
    ['mesh', 'addresses, connections, discovery'],
  ] as const) {
    diagnostics
      .command(what)
      .description(text)
      .action(async () => run(async (context) => (await import('./commands/diagnostics.ts')).runDiagnostics(context, what)))
  }
  program
    .command('routes')
    .description('what the API offers')
    .action(async () => run(async (context) => (await import('./commands/diagnostics.ts')).runRoutes(context)))
}

const addAcl = (program: Command, run: Run, behindDashes: readonly string[] | null): void => {
  const acl = program
    .command('acl')
    .description('examine an ACL file; no daemon is needed')
    .addHelpText('after', '\nExample:\n  x0x acl check /etc/x0x/exec-acl.toml')
  acl
    .command('check')
    .description('every problem of the file, and what its commands could be bent to')
    .argument('<file>')
    .action(async (file: string) => run(async (context) => (await import('./commands/acl.ts')).runAclCheck(context, file)))
  acl
    .command('explain')
    .description('would this be allowed, and what decides')
    .usage('FILE --agent ID --machine ID -- ARGV...')
    .argument('<file>')
    .argument('[argv...]')
    .requiredOption('--agent <id>', 'who asks')
    .requiredOption('--machine <id>', 'from where')
    .addHelpText('after', '\nExample:\n  x0x acl explain /etc/x0x/exec-acl.toml --agent 3f2a… --machine 6e1f… -- echo 42')
    .action(async (file: string, words: string[], { agent, machine }: { agent: string; machine: string }) =>
      run(async (context) => {
        const argv = commandWords(words, behindDashes)
        return (await import('./commands/acl.ts')).runAclExplain(context, { file, agent, machine, argv })
      }),
    )
}

interface TailFlags {
  readonly lines: string
  readonly follow?: boolean
  readonly outgoing?: boolean
}

interface VerifyFlags {
  readonly continued?: boolean
  readonly outgoing?: boolean
  readonly agent?: string
}

const OUTGOING = 'what the running daemon asked of other agents, instead of what ran here'

const addAudit = (program: Command, run: Run): void => {
  const audit = program
    .command('audit')
    .description('the journal of every decision and run on this host, and of what this agent asks of others')
    .addHelpText('after', '\nExamples:\n  x0x audit tail --lines 50 --follow\n  x0x audit verify')
  audit
    .command('tail')
    .description('its last lines')
    .argument('[file]', 'default: the journal of the running daemon')
    .option('-n, --lines <count>', 'how many', '20')
    .option('-f, --follow', 'go on as lines come')
    .option('--outgoing', OUTGOING)
    .action(async (file: string | undefined, { lines, follow = false, outgoing = false }: TailFlags) =>
      run(async (context) => (await import('./commands/audit.ts')).runAuditTail(context, { file: file ?? null, lines, follow, outgoing })),
    )
  audit
    .command('verify')
    .description(
      "was anything altered, moved or taken out, and what is signed; prints the journal's head, to compare with a copy kept elsewhere",
    )
    .argument('[files...]', 'all parts of a rotated journal; default: the journal of the running daemon')
    .option('--continued', 'older parts are gone: a chain may begin in its middle')
    .option('--agent <id>', 'who must have signed it; default: the running daemon, where no file is named, else whoever has')
    .option('--outgoing', OUTGOING)
    .action(async (files: string[], { continued = false, outgoing = false, agent }: VerifyFlags) =>
      run(async (context) =>
        (await import('./commands/audit.ts')).runAuditVerify(context, { files, continued, outgoing, agent: agent ?? null }),
      ),
    )
}
