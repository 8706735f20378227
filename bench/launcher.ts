import { spawn, type ChildProcessByStdio } from 'node:child_process'
import { createInterface } from 'node:readline'
import type { Readable, Writable } from 'node:stream'

/**
 * Reads one request per line: an ID and the words of a program, joined by NUL. Starts the program at once and writes its ID and wait
 * status (wait(2)) when it ends. The end of a program closes its copy of a pipe, so no signal can be missed. Ends with its input.
 */
const PERL = String.raw`
$^F = 1_000_000;
my ($rest, %ends, %pids, %fds) = ('');
sub start {
  my ($id, @words) = split /\0/, $_[0], -1;
  pipe(my $read, my $write) or die "pipe: $!";
  my $pid = fork // die "fork: $!";
  if ($pid == 0) {
    open STDIN, '<', '/dev/null';
    open STDOUT, '>', '/dev/null';
    exec { $words[0] } @words or exit 127;
  }
  close $write;
  ($ends{$id}, $pids{$id}) = ($read, $pid);
}
while (1) {
  my $bits = '';
  vec($bits, 0, 1) = 1;
  vec($bits, fileno($_), 1) = 1 for values %ends;
  select($bits, undef, undef, undef) > 0 or next;
  for my $id (grep { vec($bits, fileno($ends{$_}), 1) } keys %ends) {
    waitpid $pids{$id}, 0;
    syswrite STDOUT, "$id $?\n";
    close delete $ends{$id};
    delete $pids{$id};
  }
  if (vec($bits, 0, 1)) {
    sysread(STDIN, $rest, 65536, length $rest) or exit;
    start($1) while $rest =~ s/\A([^\n]*)\n//;
  }
}
`

/** A small process that starts programs for the bench, as a shell would. */
class Launcher {
  readonly #process: ChildProcessByStdio<Writable, Readable, null>
  readonly #pending = new Map<string, PromiseWithResolvers<void>>()
  #last = 0

  constructor() {
    this.#process = spawn('perl', ['-e', PERL], { stdio: ['pipe', 'pipe', 'inherit'] })
    createInterface({ input: this.#process.stdout }).on('line', (line) => this.#ended(line))
    this.#process.once('exit', () => {
      for (const { reject } of this.#pending.values()) reject(new Error('the launcher has ended'))
    })
  }

  get pid(): number {
    return this.#process.pid!
  }

  async run(file: string, argv: readonly string[]): Promise<void> {
    const id = String(++this.#last)
    const pending = Promise.withResolvers<void>()
    this.#pending.set(id, pending)
    this.#process.stdin.write(`${[id, file, ...argv].join('\0')}\n`)
    return pending.promise
  }

  /** Ends after its programs have ended. */
  stop(): void {
    this.#process.stdin.end()
  }

  #ended(line: string): void {
    const [id = '', status = ''] = line.split(' ')
    const pending = this.#pending.get(id)
    this.#pending.delete(id)
    if (status === '0') pending?.resolve()
    else pending?.reject(new Error(`a measured program ended with wait status ${status}`))
  }
}

let launcher: Launcher | null = null

/**
 * Runs a program without input and output, from a small process. The bench has more than 100 MB, and each program that it started itself
 * would wait about 10 ms for the fork. Resolves at the end of the program, or rejects if its status is not 0.
 */
export const launch = async (file: string, argv: readonly string[]): Promise<void> => (launcher ??= new Launcher()).run(file, argv)

/** Ends the process, which would keep the bench alive. */
export const stopLauncher = (): void => {
  launcher?.stop()
  launcher = null
}

/** The PID of the process that starts the programs, to measure their processor time. */
export const launcherPid = (): number => (launcher ??= new Launcher()).pid
