// Lists the third-party packages in the bundles, with their licences.
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'

import { packageRoot } from './runtime.mjs'

/** The third-party packages in the bundles, by name, each with its path, version and licence. */
export const packagesIn = async (metafiles) => {
  const inputs = metafiles.flatMap(({ inputs }) => Object.keys(inputs))
  const paths = new Set(inputs.map((path) => /.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0]).filter(Boolean))
  const parts = [...paths].sort().map(async (path) => {
    const { name, version, license } = JSON.parse(await readFile(join(packageRoot, path, 'package.json'), 'utf8'))
    return { path, name, version, license }
  })
  return Promise.all(parts)
}

/** The licence texts of all bundled packages. Most licences require a copy with the code. */
export const licences = async (packages) => {
  const parts = packages.map(async ({ path, name, version, license }) => {
    const directory = join(packageRoot, path)
    const files = (await readdir(directory)).filter((file) => /^licen[cs]e/i.test(file)).sort()
    const texts = await Promise.all(files.map((file) => readFile(join(directory, file), 'utf8')))
    return `${name} ${version} (${license})\n\n${texts.map((text) => text.trim()).join('\n\n')}\n`
  })
  return (await Promise.all(parts)).join(`\n${'-'.repeat(80)}\n\n`)
}
