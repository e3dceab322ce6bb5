#!lua
-- Publishes a document, if document_version is as expected.
--
-- KEYS: the main hash, the documents, the log. ARGV: the expected document_version, the document, its digest, by, why, and the
-- document as its author has written it.
-- The reply is 1, version, document_version; or 0 and the document_version that is there.
local call = redis.call
local head, documents, log = KEYS[1], KEYS[2], KEYS[3]
local expected, document, digest, by, why, text = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local there = call('HMGET', head, 'version', 'last', 'document_version')
local version, last, document_version = tonumber(there[1] or 0) or 0, there[2] or '', tonumber(there[3] or 0) or 0
if document_version ~= tonumber(expected) then
  return { 0, document_version }
end
version, document_version = version + 1, document_version + 1
local id = call('XADD', log, 'MAXLEN', '~', 10000, '*', 'version', version, 'after', last, 'by', by, 'why', why, 'document',
  digest)
call('HSET', head, 'version', version, 'last', id, 'document_version', document_version, 'document', document, 'digest', digest)
call('HSET', documents, document_version, document, 'text:' .. document_version, text)
call('HDEL', documents, document_version - 32, 'text:' .. document_version - 32)
return { 1, version, document_version }
