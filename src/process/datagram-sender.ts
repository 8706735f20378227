import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import type { Clock } from '../base/clock.ts'
import { AppError, errorText } from '../base/errors.ts'
import type { Startable } from '../base/startable.ts'
import { MAX_DATAGRAM_BACKLOG } from '../protocol/limits/daemon.ts'

/** Node.js cannot send datagrams on Unix sockets. */
const PERL = '/usr/bin/perl'

/** Delay before a dead helper is restarted. Messages until then are lost. */
export const HELPER_RETRY_MS = 5_000
/** Time for pending messages at a stop. A receiver that does not read delays each message by a second. */
const HELPER_STOP_MS = 1_000

/** Sends each input line as a datagram, reconnects to a replaced receiver, and prints an error for each line that was not received. */
const SCRIPT = String.raw`
use Socket;
$| = 1;
my ($path, $socket) = @ARGV;
sub dial {
  socket(my $new, AF_UNIX, SOCK_DGRAM, 0) or return;
  setsockopt($new, SOL_SOCKET, SO_SNDTIMEO, pack('l!l!', 1, 0));
  $socket = connect($new, sockaddr_un($path)) ? $new : undef;
}
while (my $line = <STDIN>) {
  chomp $line;
  dial() unless $socket;
  my $sent = $socket && defined send($socket, $line, 0);
  unless ($sent || $!{EAGAIN} || $!{EWOULDBLOCK}) {
    dial();
    $sent = $socket && defined send($socket, $line, 0);
  }
  print "$!\n" unless $sent;
}
`

/** Throws `bad_config` if perl is missing. */
export const checkDatagrams = (): void => {
  if (!existsSync(PERL)) throw new AppError('bad_config', `syslog: ${PERL} is missing, which sends what this runtime cannot`)
}

export interface DatagramSocketInit {
  readonly path: string
  /** Called with the number of messages that were accepted and lost. */
  readonly onLost: (count: number, why: string) => void
}

/** Sends messages without line feeds to a local datagram socket, through a small helper process that may block. */
export class DatagramSocket implements Startable {
  readonly #clock: Clock
  readonly #init: DatagramSocketInit
  #helper: ChildProcess | null = null
  #launchedAt = -Infinity
  #running = false

  constructor(deps: { clock: Clock }, init: DatagramSocketInit) {
    this.#clock = deps.clock
    this.#init = init
  }

  start(): void {
    this.#running = true
    this.#launch()
  }

  /** Sends pending messages, for HELPER_STOP_MS at most. */
  async stop(): Promise<void> {
    this.#running = false
    const helper = this.#helper
    if (helper === null) return
    const timer = this.#clock.setTimeout(() => void helper.kill('SIGKILL'), HELPER_STOP_MS)
    const gone = once(helper, 'exit')
    helper.stdin?.end()
    await gone
    timer.cancel()
  }

  /** Returns false, without sending the message, if the queue is full. */
  send(message: string): boolean {
    if (this.#helper === null && this.#running && this.#clock.monotonic() - this.#launchedAt >= HELPER_RETRY_MS) this.#launch()
    const stdin = this.#helper?.stdin
    if (!this.#running || stdin === null || stdin === undefined || stdin.writableLength > MAX_DATAGRAM_BACKLOG) return false
    stdin.write(`${message}\n`, this.#written)
    return true
  }

  /** Counts messages that a dead helper had not read. */
  readonly #written = (error?: Error | null): void => {
    if (error) this.#init.onLost(1, 'the process that sends it has ended')
  }

  #launch(): void {
    this.#launchedAt = this.#clock.monotonic()
    // In its own session, so that Ctrl-C does not end it.
    const helper = spawn(PERL, ['-e', SCRIPT, this.#init.path], { cwd: '/', env: {}, stdio: ['pipe', 'pipe', 'ignore'], detached: true })
    this.#helper = helper
    helper.stdin?.on('error', () => undefined)
    helper.stdout?.setEncoding('utf8').on('data', (text: string) => {
      const reasons = text.split('\n').filter((line) => line !== '')
      if (reasons.length > 0) this.#init.onLost(reasons.length, reasons.at(-1)!)
    })
    const ended = (why: string): void => {
      if (this.#helper !== helper) return
      this.#helper = null
      if (this.#running) this.#init.onLost(0, why)
    }
    helper.once('error', (error) => ended(errorText(error)))
    helper.once('exit', () => ended('the process that sends it has ended'))
  }
}
