import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

import { findExecutable } from '../../src/policy/executable.ts'
import { temporaryDirectory } from './processes.ts'

const perl = findExecutable('perl')

export const needsPerl = perl.kind === 'found' ? {} : { skip: 'needs perl' }

const perlProgram = async (t: TestContext, text: string): Promise<string> => {
  const path = join(await temporaryDirectory(t), 'program.pl')
  await writeFile(path, text)
  return `${perl.kind === 'found' ? perl.executable.path : 'perl'} ${path}`
}

/**
 * A command with this number of stopped groups in its session. When the session leader dies, the kernel sends SIGHUP and SIGCONT to
 * the groups. Each then starts another process.
 */
export const orphanedGroups = async (t: TestContext, count: number): Promise<string> =>
  perlProgram(
    t,
    `use POSIX 'setsid';
setsid();
$SIG{TERM} = 'IGNORE';
$SIG{HUP} = sub { if (!fork) { setsid(); exec 'sleep', '1000' } };
open STDOUT, '>', '/dev/null';
open STDERR, '>', '/dev/null';
for (1 .. ${count}) {
  if (my $group = fork) { setpgrp $group, $group } else { sleep 1000 while 1 }
}
sleep 1000 while 1;
`,
  )

/** A command that leaves a process which joins its group again after all members were killed. An unreaped zombie keeps the group. */
export const joiningLate = async (t: TestContext): Promise<string> =>
  perlProgram(
    t,
    `my $leader = $$;
open STDOUT, '>', '/dev/null';
open STDERR, '>', '/dev/null';
if (fork) { sleep 1; exit }
setpgrp 0, 0;
my $member = fork;
if (!$member) { setpgrp 0, $leader; sleep 1000 while 1 }
for (my $state = ''; $state ne 'Z';) {
  select undef, undef, undef, 0.0002;
  open my $stat, '<', "/proc/$member/stat";
  ($state) = <$stat> =~ /\\) (.)/;
}
setpgrp 0, $leader;
sleep 1000 while 1;
`,
  )
