// Names the files of tests whose outcome could be another for an ordinary user than for root: what the kernel, asked for files,
// processes, namespaces and groups, answers by who asks. CI tries the others as root alone.
import { existsSync, globSync, readFileSync } from 'node:fs'
import { dirname, join, sep } from 'node:path'
import { fileURLToPath } from 'node:url'

import { packageRoot } from './runtime.mjs'

/** In a file of tests: rights, refusals by them, other users, and what contains programs. Not the mode that a file is written with. */
const OF_THE_USER =
  /\bget(e?uid|groups)\b|userInfo\(|ch(mod|own)|EACCES|EPERM|other-user|umask|setpriv|sandbox(ed|-problem)|containment|bwrap|cgroup|(?<!mode: )0o[0-7]{3}\b|sshd/

/** In a story of whole programs: of the modes those alone that keep something from who sets them. What others may is decided, and tried for each user, below test/. */
const OF_ITS_USER =
  /\bget(e?uid|groups)\b|userInfo\(|chown|EACCES|EPERM|other-user|umask|setpriv|sandbox(ed|-problem)|containment|bwrap|cgroup|0o(000|[1-5][0-7]{2})\b|sshd/

/** What no rule above names: a story of each program that people start, and the half that is of another user only where root starts it. */
export const NAMED = [
  'e2e/first-minutes.test.ts',
  'e2e/approvals/command-line.test.ts',
  'e2e/mcp/init.test.ts',
  'e2e/syscall-filter.test.ts',
  'test/programs/ui/ui.test.ts',
  'test/attacks/network-half.test.ts',
  'test/attacks/network-half-stdin.test.ts',
]

/** In what it tests itself: the calls whose answer depends on who asks. */
const ASKS_FOR_THE_USER = /\bget(e?uid|groups)\b|\b[lf]?ch(mod|own)\(|'(EACCES|EPERM)'|\bunshare\b|'bwrap'|\/sys\/fs\/cgroup|\.uid\b/

/** In a helper that it imports: those may give any program that they write the right to be run. */
const NEEDS_A_USER = /\bget(e?uid|groups)\(|\bl?chown\(|\bunshare\b|'bwrap'|\/sys\/fs\/cgroup|\bsshd\b/

const IMPORT = /from '(\.[^']+\.ts)'/g

const read = (path) => readFileSync(path, 'utf8')

export const dependsOnUser = (file) => {
  const path = join(packageRoot, file)
  const text = read(path)
  if ((file.startsWith('e2e/') ? OF_ITS_USER : OF_THE_USER).test(text) || NAMED.includes(file)) return true
  const imported = [...text.matchAll(IMPORT)].map(([, from]) => join(dirname(path), from)).filter((each) => existsSync(each))
  const ours = join(packageRoot, 'src') + sep
  return imported.some((each) => (each.startsWith(ours) ? ASKS_FOR_THE_USER : NEEDS_A_USER).test(read(each)))
}

export const userTests = () =>
  globSync(['test/**/*.test.ts', 'e2e/**/*.test.ts'], { cwd: packageRoot })
    .filter((file) => dependsOnUser(file))
    .sort()

if (process.argv[1] === fileURLToPath(import.meta.url)) console.log(userTests().join('\n'))
