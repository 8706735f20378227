import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import type { TestContext } from 'node:test'

import { until } from './mesh-of-daemons.ts'

/** Acts as systemd with OpenFile=. Descriptor 3 of the program is a datagram socket, and each message to it is printed as a line. */
const MANAGER = `use Socket;
$| = 1;
socketpair(my $ours, my $theirs, AF_UNIX, SOCK_DGRAM, PF_UNSPEC) or die $!;
my $pid = fork;
if (!$pid) {
  use POSIX 'dup2';
  dup2(fileno($theirs), 3) or die $!;
  $^F = 3;
  @ENV{'LISTEN_PID', 'LISTEN_FDS', 'LISTEN_FDNAMES'} = ($$, 1, 'x0x-notify');
  open STDOUT, '>', '/dev/null';
  exec @ARGV or die $!;
}
print "pid $pid\\n";
$SIG{TERM} = sub { kill 'KILL', $pid };
$SIG{CHLD} = sub { waitpid $pid, 0; while (recv $ours, my $text, 4096, MSG_DONTWAIT) { pass($text) } exit 0 };
sub pass { my $text = shift; $text =~ s/\\n/|/g; print "$text\\n" }
while (1) { defined recv($ours, my $text, 4096, 0) or next; pass($text) }
`

export interface Notified {
  readonly pid: number
  /** Messages, with the lines of each joined. */
  readonly messages: readonly string[]
  /** Waits for a matching message after the previous one. */
  says(message: RegExp): Promise<string>
  readonly ended: Promise<unknown>
}

/** Starts a program and receives the status messages for its service manager. The test ends it. */
export const startNotified = async (t: TestContext, argv: readonly string[], env: NodeJS.ProcessEnv): Promise<Notified> => {
  const child = spawn('perl', ['-e', MANAGER, ...argv], { stdio: ['ignore', 'pipe', 'inherit'], env })
  const ended = once(child, 'exit')
  t.after(async () => {
    child.kill('SIGTERM')
    await ended
  })
  const messages: string[] = []
  createInterface(child.stdout).on('line', (line) => messages.push(line))
  let seen = 0
  const says = async (message: RegExp): Promise<string> =>
    until(`it says ${message}`, () => {
      const at = messages.findIndex((one, index) => index >= seen && message.test(one))
      if (at < 0) return false
      seen = at + 1
      return messages[at]!
    })
  const pid = Number(/\d+/.exec(await says(/^pid /)))
  return { pid, messages, says, ended }
}
