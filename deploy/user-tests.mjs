// Names the files of tests whose outcome could be another for an ordinary user than for root: what the kernel, asked for files,
// processes, namespaces and groups, answers by who asks. CI tries the others as root alone.
import { existsSync, globSync, readFileSync } from 'node:fs'
import { dirname, join, sep } from 'node:path'
import { fileURLToPath } from 'node:url'

import { packageRoot } from './runtime.mjs'

/** In a file of tests: rights, refusals by them, other users, and what contains programs. */
const OF_THE_USER =
  /\bget(e?uid|groups)\b|userInfo\(|ch(mod|own)|EACCES|EPERM|other-user|umask|setpriv|sandbox(ed|-problem)|containment|bwrap|cgroup|0o[0-7]{3}\b|sshd/

/** In what it tests itself: the calls whose answer depends on who asks. */
const ASKS_FOR_THE_USER = /\bget(e?uid|groups)\b|\b[lf]?ch(mod|own)\(|'(EACCES|EPERM)'|\bunshare\b|'bwrap'|\/sys\/fs\/cgroup|\.uid\b/

/** In a helper that it imports: those may give any program that they write the right to be run. */
const NEEDS_A_USER = /\bget(e?uid|groups)\(|\bl?chown\(|\bunshare\b|'bwrap'|\/sys\/fs\/cgroup|\bsshd\b/

const IMPORT = /from '(\.[^']+\.ts)'/g

const read = (path) => readFileSync(path, 'utf8')

export const dependsOnUser = (file) => {
  const path = join(packageRoot, file)
  const text = read(path)
  if (OF_THE_USER.test(text)) return true
  const imported = [...text.matchAll(IMPORT)].map(([, from]) => join(dirname(path), from)).filter((each) => existsSync(each))
  const ours = join(packageRoot, 'src') + sep
  return imported.some((each) => (each.startsWith(ours) ? ASKS_FOR_THE_USER : NEEDS_A_USER).test(read(each)))
}

export const userTests = () =>
  globSync(['test/**/*.test.ts', 'e2e/**/*.test.ts'], { cwd: packageRoot })
    .filter((file) => dependsOnUser(file))
    .sort()

if (process.argv[1] === fileURLToPath(import.meta.url)) console.log(userTests().join('\n'))
