// Replaces src/identity/light-hash.ts if the runtime is Bun. Bun's hash works without loading a module.
export { lightRandomBytes } from '../../src/identity/light-hash.ts'

export const lightHmac = (key, ...parts) => {
  const mac = new globalThis.Bun.CryptoHasher('sha256', key)
  for (const part of parts) mac.update(part)
  return new Uint8Array(mac.digest())
}
