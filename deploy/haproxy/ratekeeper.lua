-- Asks Ratekeeper whether a request may pass. A denial is answered with its status, its fields and its body; the RateLimit
-- fields of a request that passes are in variables, for http-response set-header.

local TIMEOUT_MS = 250
-- What belongs to the connection, or is said below.
local LEFT_OUT = {
    ["connection"] = true, ["content-length"] = true, ["host"] = true, ["keep-alive"] = true, ["transfer-encoding"] = true,
    ["upgrade"] = true, ["expect"] = true, ["te"] = true, ["trailer"] = true,
    ["x-forwarded-for"] = true, ["x-forwarded-host"] = true, ["x-forwarded-method"] = true, ["x-forwarded-uri"] = true,
}
local HANDED_ON = { "content-type", "ratelimit", "ratelimit-policy", "retry-after" }

local function asked(txn)
    local sent, fields, chain = txn.http:req_get_headers(), {}, {}
    for name, lines in pairs(sent) do
        if not LEFT_OUT[name] then
            fields[name] = {}
            for index = 0, #lines do
                table.insert(fields[name], lines[index])
            end
        end
    end
    local before = sent["x-forwarded-for"]
    for index = 0, before and #before or -1 do
        table.insert(chain, before[index])
    end
    -- Last, because Ratekeeper believes the last one: what HAProxy has seen itself.
    table.insert(chain, txn.f:src())
    fields["x-forwarded-for"] = { table.concat(chain, ", ") }
    fields["x-forwarded-method"] = { txn.f:method() }
    fields["x-forwarded-uri"] = { txn.f:pathq() }
    if sent["host"] then
        fields["x-forwarded-host"] = { sent["host"][0] }
    end
    return fields
end

local function field(response, name)
    local lines = response.headers and response.headers[name]
    return lines and (lines[0] or lines[1])
end

core.register_action("ratekeeper", { "http-req" }, function(txn, url)
    local response = core.httpclient():get({ url = url, headers = asked(txn), timeout = TIMEOUT_MS })
    if not response or (response.status ~= 429 and response.status ~= 503 and response.status ~= 200) then
        core.Warning("ratekeeper: no decision, status " .. tostring(response and response.status))
        return
    end
    if response.status == 200 then
        for variable, name in pairs({ ["txn.ratelimit"] = "ratelimit", ["txn.ratelimit_policy"] = "ratelimit-policy" }) do
            local value = field(response, name)
            if value then
                txn:set_var(variable, value)
            end
        end
        return
    end
    -- Without a Retry-After or a RateLimit it is HAProxy's own 503: Ratekeeper is away.
    if response.status == 503 and not field(response, "retry-after") and not field(response, "x-ratekeeper-status") then
        core.Warning("ratekeeper: away")
        return
    end
    local reply = txn:reply({ status = response.status })
    for _, name in ipairs(HANDED_ON) do
        local value = field(response, name)
        if value then
            reply:add_header(name, value)
        end
    end
    reply:set_body(response.body or "")
    txn:done(reply)
end, 1)
