import { rm } from 'node:fs/promises'
import { writeFileAtomic } from '../base/atomic-file.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import type { LoadedAcl } from '../policy/mesh/load-acl.ts'

/** The ACL file as the running daemon has it, for its operator to compare with what the file has become (`x0x acl diff`). For this user alone. */
export class AclCopy implements Startable {
  readonly #log: Logger
  readonly #path: string
  readonly #loaded: () => LoadedAcl

  constructor(components: { readonly log: Logger }, init: { readonly path: string; readonly loaded: () => LoadedAcl }) {
    this.#log = components.log
    this.#path = init.path
    this.#loaded = init.loaded
  }

  /** Makes it, of what was read then: the file may be another by now. None where there was no file. */
  async start(): Promise<void> {
    const { bytes } = this.#loaded()
    await (bytes === null ? this.stop() : writeFileAtomic(this.#path, bytes))
  }

  /** After another file has taken effect. Where it cannot be made there is none: the one of before would pass for what is in force. */
  async renew(): Promise<void> {
    await this.start().catch(async (error: unknown) => {
      this.#log.error({ err: errorText(error) }, 'the ACL in force could not be copied, so x0x acl diff has nothing to compare with')
      await this.stop()
    })
  }

  async stop(): Promise<void> {
    await rm(this.#path, { force: true })
  }
}
