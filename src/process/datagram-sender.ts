import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import type { Clock } from '../base/clock.ts'
import { AppError, errorText } from '../base/errors.ts'
import type { Startable } from '../base/startable.ts'
import { MAX_DATAGRAM_BACKLOG } from '../protocol/limits/daemon.ts'

/** The runtime has no datagrams of unix sockets. */
const PERL = '/usr/bin/perl'

/** A helper that ended is started again so long after its start; until then what is to be sent is lost. */
export const HELPER_RETRY_MS = 5_000
/** For what it still has when we stop: a receiver that takes nothing holds up each message for a second. */
const HELPER_STOP_MS = 1_000

/** Sends each line of its input as a datagram, by a new socket where the receiver is another one now, and says of each line that nobody took. */
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

/** Throws `bad_config` where this host has not what it takes. */
export const checkDatagrams = (): void => {
  if (!existsSync(PERL)) throw new AppError('bad_config', `syslog: ${PERL} is missing, which sends what this runtime cannot`)
}

export interface DatagramSocketInit {
  /** Of the socket. */
  readonly path: string
  /** So many were taken and reached nobody. */
  readonly onLost: (count: number, why: string) => void
}

/** Messages without line feeds to a datagram socket of this host, by a small process that waits in our place. */
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

  /** What it has is sent, where that is quick. */
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

  /** False: there is no room, and it is not sent. */
  send(message: string): boolean {
    if (this.#helper === null && this.#running && this.#clock.monotonic() - this.#launchedAt >= HELPER_RETRY_MS) this.#launch()
    const stdin = this.#helper?.stdin
    if (!this.#running || stdin === null || stdin === undefined || stdin.writableLength > MAX_DATAGRAM_BACKLOG) return false
    stdin.write(`${message}\n`, this.#written)
    return true
  }

  /** What a helper that ends had not taken yet. */
  readonly #written = (error?: Error | null): void => {
    if (error) this.#init.onLost(1, 'the process that sends it has ended')
  }

  #launch(): void {
    this.#launchedAt = this.#clock.monotonic()
    // A session of its own: a Ctrl-C is for us.
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
