// Makes a list of the parts of a package in the format CycloneDX 1.6, for tools that look for known vulnerabilities.
import { createHash } from 'node:crypto'

/** The package URL of an npm package. */
const purl = ({ name, version }) => `pkg:npm/${name.replace('@', '%40')}@${version}`

const component = ({ name, version, license }) => ({
  type: 'library',
  'bom-ref': purl({ name, version }),
  name,
  version,
  licenses: [/[ ()]/.test(license) ? { expression: license } : { license: { id: license } }],
  purl: purl({ name, version }),
})

/**
 * `inside` has name, version and licence of each part. The serial number depends on the contents only, so equal packages have equal
 * numbers.
 */
export const sbomOf = ({ name, version, seconds, inside }) => {
  const components = [...new Map(inside.map((one) => [purl(one), component(one)])).values()]
  components.sort((a, b) => (a.purl < b.purl ? -1 : 1))
  const hash = createHash('sha256')
    .update(JSON.stringify([name, version, components]))
    .digest('hex')
  const [, a, b, c, d, e] = /^(.{8})(.{4}).(.{3}).(.{3})(.{12})/.exec(hash)
  return {
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    serialNumber: `urn:uuid:${a}-${b}-8${c}-8${d}-${e}`,
    version: 1,
    metadata: {
      timestamp: new Date(seconds * 1000).toISOString(),
      component: { type: 'application', 'bom-ref': name, name, version, licenses: [{ license: { id: 'Apache-2.0' } }] },
    },
    components,
  }
}
