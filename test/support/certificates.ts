import { execFile, spawnSync } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)

/** Empty, or the reason why the tests cannot create certificates. The titles of tests end with it. */
export const withoutOpenssl = spawnSync('openssl', ['version']).status === 0 ? '' : ' (skipped: no openssl)'

export interface Certificate {
  readonly certFile: string
  readonly keyFile: string
  readonly cert: string
  readonly key: string
}

/** Creates a certificate that is valid for a day. Without an issuer it is a self-signed CA certificate. */
export const certificate = async (
  dir: string,
  name: string,
  { issuer, extensions = [] }: { issuer?: Certificate; extensions?: readonly string[] } = {},
): Promise<Certificate> => {
  const [certFile, keyFile] = [join(dir, `${name}.crt`), join(dir, `${name}.key`)]
  const signed = issuer === undefined ? [] : ['-CA', issuer.certFile, '-CAkey', issuer.keyFile]
  await run('openssl', [
    ...'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj'.split(' '),
    `/CN=${name}`,
    '-keyout',
    keyFile,
    '-out',
    certFile,
    ...extensions.flatMap((one) => ['-addext', one]),
    ...signed,
  ])
  return { certFile, keyFile, cert: await readFile(certFile, 'utf8'), key: await readFile(keyFile, 'utf8') }
}
