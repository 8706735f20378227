import { X509Certificate } from 'node:crypto'
import { AppError, errorText } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { type RexdHttpConfig, type TlsMaterial, readTlsMaterial } from '../../config/rexd-http-config.ts'

/** Reads the files of the certificates again, and answers what became of it, for a line of status. What cannot be used changes nothing. */
export const renewCertificates = async (
  { door, log }: { readonly door: { renewCertificates(tls: TlsMaterial): void }; readonly log: Logger },
  http: RexdHttpConfig,
): Promise<string> => {
  try {
    const tls = await readTlsMaterial(http)
    if (tls === null) {
      log.warn('there is nothing to read again: no certificates are configured, and the rest is read at the start')
      return ''
    }
    const until = new X509Certificate(tls.cert).validToDate
    if (until.getTime() <= Date.now()) throw new AppError('bad_config', `server.tls_cert: it was valid until ${until.toISOString()}`)
    door.renewCertificates(tls)
    log.warn({ valid_until: until.toISOString() }, 'the certificates were read again')
    return '; the certificates were read again'
  } catch (error) {
    log.error({ err: errorText(error) }, 'the certificates were not taken, and those in force stay')
    return '; the certificates could not be used and were not taken'
  }
}
