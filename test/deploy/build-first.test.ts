import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmod, copyFile, mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { pathToFileURL } from 'node:url'

import { isRoot } from '../support/containment.ts'
import { tempDir } from '../support/temp-dir.ts'

/** Without this capability, root may not write everywhere. */
const AS_ANY_USER = isRoot ? ['setpriv', '--bounding-set=-dac_override', '--inh-caps=-dac_override'] : []

test(
  'in a clone that the user may not write, no build starts, and the error says what to do',
  { skip: process.platform !== 'linux' },
  async (t) => {
    const clone = await tempDir(t)
    const deploy = new URL('../../deploy/', import.meta.url)
    for (const name of ['src', 'deploy', 'deploy/bin']) await mkdir(join(clone, name))
    for (const name of ['runtime.mjs', 'bin/build-first.mjs']) await copyFile(new URL(name, deploy), join(clone, 'deploy', name))
    const module = pathToFileURL(join(clone, 'deploy', 'bin', 'build-first.mjs')).href
    const text = `import { buildFirst } from ${JSON.stringify(module)}; await buildFirst(() => console.log('went on'))`
    const [file, ...words] = [...AS_ANY_USER, process.execPath, '--input-type=module', '-e', text]
    await chmod(clone, 0o555)
    const { status, stdout, stderr } = spawnSync(file, words, { encoding: 'utf8' })
    await chmod(clone, 0o755)
    assert.deepEqual([status, stdout], [2, ''], stderr)
    assert.match(stderr, /^x0x could not be built: \S+ is not yours to build in; its owner runs npm run build once\n$/)
  },
)
