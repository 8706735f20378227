// `npm run packages [-- --check | --lintian | --compare]`: makes all packages that users install, in dist/packages. Needs Linux, tar and
// dpkg-deb, but not root.
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'

import { buildWhatIsNew } from '../build.mjs'
import { CACHES } from '../built.mjs'
import { packageRoot } from '../runtime.mjs'
import { Check } from './check.mjs'
import { comparePackages } from './compare.mjs'
import { makeDebs } from './deb.mjs'
import { makeClient, makePackage } from './npm.mjs'
import { makeOneFileRexd } from './one-file-rexd.mjs'
import { OUT, sourceDate, WORK } from './place.mjs'
import { sbomOf } from './sbom.mjs'
import { makeSingleFiles } from './single-file.mjs'

const { version } = JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8'))

const make = async () => {
  for (const place of [OUT, WORK]) {
    rmSync(place, { recursive: true, force: true })
    mkdirSync(place, { recursive: true })
  }
  try {
    const inside = await buildWhatIsNew()
    const missing = CACHES.filter((name) => !existsSync(join(packageRoot, 'dist', name)))
    if (missing.length > 0) throw new Error(`the build could not compile ${missing.join(', ')}, so the packages would not be reproducible`)
    const making = [makePackage(inside), makeClient(), makeSingleFiles(), makeOneFileRexd(inside), makeDebs(inside)]
    const made = (await Promise.all(making)).flat()
    const seconds = await sourceDate()
    for (const { names, inside: parts } of made)
      for (const name of names) {
        const sbom = sbomOf({ name, version, seconds, inside: parts })
        writeFileSync(join(OUT, `${name}.cdx.json`), `${JSON.stringify(sbom, null, 2)}\n`)
      }
    const sums = readdirSync(OUT)
      .sort()
      .map((name) => [
        createHash('sha256')
          .update(readFileSync(join(OUT, name)))
          .digest('hex'),
        name,
      ])
    writeFileSync(join(OUT, 'SHA256SUMS'), sums.map((sum) => `${sum.join('  ')}\n`).join(''))
    for (const [sum, name] of sums)
      if (!name.endsWith('.cdx.json'))
        console.log(`made ${name}, ${(statSync(join(OUT, name)).size / 1e6).toFixed(1)} MB, ${sum.slice(0, 16)}…, with its SBOM`)
  } finally {
    rmSync(WORK, { recursive: true, force: true })
  }
}

const flag = { type: 'boolean' }
const { check, lintian, compare } = parseArgs({ options: { check: flag, lintian: flag, compare: flag } }).values
const checking = check || lintian ? new Check() : undefined
try {
  await make()
  await checking?.run(version, lintian)
  if (compare) await comparePackages()
} catch (error) {
  console.error(error)
  process.exitCode = 1
} finally {
  await checking?.end()
}
