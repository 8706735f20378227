// Stands for src/identity/light-hash.ts where the runtime is Bun, whose own hash needs no module to be compiled first.
export { lightRandomBytes } from '../../src/identity/light-hash.ts'

export const lightHmac = (key, ...parts) => {
  const mac = new globalThis.Bun.CryptoHasher('sha256', key)
  for (const part of parts) mac.update(part)
  return new Uint8Array(mac.digest())
}
