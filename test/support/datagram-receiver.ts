import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import type { TestContext } from 'node:test'

const SCRIPT = String.raw`
use Socket;
$| = 1;
my ($path, $reads) = @ARGV;
unlink $path;
socket(my $socket, AF_UNIX, SOCK_DGRAM, 0) or die;
bind($socket, sockaddr_un($path)) or die;
print "listening\n";
sleep 1000 unless $reads;
while (defined recv($socket, my $message, 65536, 0)) { print "$message\n" }
`

/** A real datagram socket on this machine, with the messages that it received. */
export class DatagramReceiver {
  readonly #child: ChildProcess
  #text = ''

  private constructor(child: ChildProcess) {
    this.#child = child
  }

  /** If `reads` is false, the receiver never reads, so its queue fills. */
  static async start(t: Pick<TestContext, 'after'>, path: string, { reads = true } = {}): Promise<DatagramReceiver> {
    const child = spawn('/usr/bin/perl', ['-e', SCRIPT, path, reads ? '1' : ''], { stdio: ['ignore', 'pipe', 'inherit'] })
    const receiver = new DatagramReceiver(child)
    t.after(async () => receiver.stop())
    child.stdout.setEncoding('utf8').on('data', (text: string) => (receiver.#text += text))
    await receiver.has(() => receiver.#text.startsWith('listening\n'))
    return receiver
  }

  /** Complete messages, in order of arrival. */
  get messages(): string[] {
    return this.#text.split('\n').slice(1, -1)
  }

  /** Resolves when the condition holds. */
  async has(condition: (messages: readonly string[]) => boolean): Promise<void> {
    while (!condition(this.messages)) await once(this.#child.stdout!, 'data')
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    const gone = once(this.#child, 'exit')
    this.#child.kill('SIGKILL')
    await gone
  }
}
