import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

import { isRoot } from '../../test/support/containment.ts'
import { needsSandbox, titled } from '../../test/support/sandboxed.ts'

// If no sandbox is available, the message of a run says what to do. Tests with a server in e2e/rexd check that no command runs instead.

/** In a user namespace of an ordinary user, the system's programs have an unknown owner. */
const needsRoot = { skip: needsSandbox.skip || !isRoot }

const PROGRAM = fileURLToPath(new URL('../../test/support/sandbox-problem.ts', import.meta.url))

const rooted = (name: string): string => (isRoot ? titled(name) : `${name} (skipped: needs root)`)

/** Result of the sandbox probe after this change to the host, which only the probe sees. */
const problemWhere = async (words: readonly string[], change: string, then: readonly string[] = []): Promise<string> => {
  const command = `${change}; exec "$@"`
  const [file, ...args] = [...words, 'sh', '-c', command, 'sh', ...then, process.execPath, PROGRAM]
  const { stdout } = await promisify(execFile)(file, args)
  return stdout
}

const POWERLESS = ['setpriv', '--bounding-set=-all', '--inh-caps=-all']

test(rooted('if the system forbids user namespaces, the message names the sysctl'), needsRoot, async () => {
  const said = await problemWhere(['unshare', '-Ur'], 'echo 0 > /proc/sys/user/max_user_namespaces', POWERLESS)
  assert.match(
    said,
    /^impossible: bubblewrap does not work on this machine \(bwrap: .*\): the system forbids user namespaces: .*sysctl -w user\.max_user_namespaces=15000/,
  )
})

test(rooted('a sandbox of root needs no user namespace'), needsRoot, async () => {
  const said = await problemWhere(['unshare', '-Ur'], 'echo 0 > /proc/sys/user/max_user_namespaces')
  assert.equal(said, 'works, user namespace: false\n')
})

test(rooted('if bubblewrap is not installed, the message names the package'), needsRoot, async () => {
  const said = await problemWhere(
    ['unshare', '-m'],
    'for at in /usr/bin/bwrap /bin/bwrap /usr/local/bin/bwrap; do [ -e "$at" ] && mount --bind /dev/null "$at"; done',
  )
  assert.match(said, /^impossible: bwrap is not installed \(package bubblewrap\)/)
})
