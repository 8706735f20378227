// Prints the test files whose result can differ between root and an ordinary user, because the kernel decides by the user: about files,
// processes, namespaces and groups. CI runs the other files as root only.
import { existsSync, globSync, readFileSync } from 'node:fs'
import { dirname, join, sep } from 'node:path'
import { fileURLToPath } from 'node:url'

import { packageRoot } from './runtime.mjs'

/** Words of tests about file rights, other users and containment. The mode of a written file does not count. */
const ABOUT_USERS =
  /\bget(e?uid|groups)\b|userInfo\(|ch(mod|own)|EACCES|EPERM|other-user|umask|setpriv|sandbox(ed|-problem)|containment|bwrap|cgroup|(?<!mode: )0o[0-7]{3}\b|sshd/

/** The same for tests below e2e. Of the file modes, only those that restrict the owner count, because tests below test/ try the others. */
const ABOUT_USERS_E2E =
  /\bget(e?uid|groups)\b|userInfo\(|chown|EACCES|EPERM|other-user|umask|setpriv|sandbox(ed|-problem)|containment|bwrap|cgroup|0o(000|[1-5][0-7]{2})\b|sshd/

/** Files without such words: one test of each program, and tests of a network process that has another user only if root starts it. */
export const NAMED = [
  'e2e/first-minutes.test.ts',
  'e2e/approvals/command-line.test.ts',
  'e2e/mcp/init.test.ts',
  'e2e/syscall-filter.test.ts',
  'test/programs/ui/ui.test.ts',
  'test/attacks/network-process.test.ts',
  'test/attacks/network-process-stdin.test.ts',
]

/** System calls whose result depends on the user, in a tested module. */
const CALLS_BY_USER = /\bget(e?uid|groups)\b|\b[lf]?ch(mod|own)\(|'(EACCES|EPERM)'|\bunshare\b|'bwrap'|\/sys\/fs\/cgroup|\.uid\b/

/** The same in a test helper. `chmod` does not count, because helpers use it to make programs executable. */
const HELPER_CALLS_BY_USER = /\bget(e?uid|groups)\(|\bl?chown\(|\bunshare\b|'bwrap'|\/sys\/fs\/cgroup|\bsshd\b/

const IMPORT = /from '(\.[^']+\.ts)'/g

const read = (path) => readFileSync(path, 'utf8')

export const dependsOnUser = (file) => {
  const path = join(packageRoot, file)
  const text = read(path)
  if ((file.startsWith('e2e/') ? ABOUT_USERS_E2E : ABOUT_USERS).test(text) || NAMED.includes(file)) return true
  const imported = [...text.matchAll(IMPORT)].map(([, from]) => join(dirname(path), from)).filter((each) => existsSync(each))
  const ours = join(packageRoot, 'src') + sep
  return imported.some((each) => (each.startsWith(ours) ? CALLS_BY_USER : HELPER_CALLS_BY_USER).test(read(each)))
}

export const userTests = () =>
  globSync(['test/**/*.test.ts', 'e2e/**/*.test.ts'], { cwd: packageRoot })
    .filter((file) => dependsOnUser(file))
    .sort()

if (process.argv[1] === fileURLToPath(import.meta.url)) console.log(userTests().join('\n'))
