import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { until, type TestDaemon } from '../test/support/mesh-of-daemons.ts'
import type { Stage } from './stage.ts'

/** Directory on bob that alice may use. */
export const SITE = 'site'

/** The files table of the ACL for that directory. */
export const filesTable = (root: string): string => `[[exec.allow.files]]\nroot = "${join(root, SITE)}"\nread = true\nwrite = true\n`

/** Alice copies a file to bob and back, and is denied another path. */
export const showFiles = async (stage: Stage, { alice, bob }: { alice: TestDaemon; bob: TestDaemon }, root: string): Promise<void> => {
  stage.section('Files: only below the directories that the ACL lists')
  const site = join(root, SITE)
  await mkdir(site, { recursive: true })
  const page = join(root, 'index.html')
  await writeFile(page, '<h1>Hello</h1>\n')
  const cp = async (from: string, to: string) => {
    const result = await alice.cli(['cp', from, to], { env: { NO_COLOR: '1' } })
    const shortened = [from, to].map((path) => path.replace(site, '/srv/site').replace(`${root}/`, ''))
    stage.command('alice', `x0x cp ${shortened.join(' ')}`, (result.stdout.toString() + result.stderr).replaceAll(site, '/srv/site'))
    return result
  }
  const up = await cp(page, `bob:${site}/`)
  const arrived = (await readFile(join(site, 'index.html'), 'utf8')) === '<h1>Hello</h1>\n'
  stage.expect('bob has the file, whole and at once', up.status === 0 && arrived, up.ms)
  const down = await cp(`bob:${site}/index.html`, '-')
  stage.expect('the same bytes come back', down.status === 0 && down.stdout.toString() === '<h1>Hello</h1>\n', down.ms)
  const denied = await cp('bob:/etc/shadow', '-')
  const isDenied = denied.status === 255 && denied.stderr.includes('argv_not_allowed')
  stage.expect('/etc/shadow: argv_not_allowed, exit status 255', isDenied, denied.ms)
  const logged = await until('the audit log has the copy', async () =>
    (await bob.journal()).some(({ argv }) => Array.isArray(argv) && argv[0] === '@write'),
  )
  stage.expect("bob's audit log had the copy before it began", logged)
}
