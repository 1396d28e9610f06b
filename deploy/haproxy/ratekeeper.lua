-- Asks Ratekeeper whether a request may pass. A denial is answered with its status, its fields and its body; the RateLimit
-- fields of a request that passes are in variables, for http-response set-header. While nobody answers, requests pass.
-- Any other answer is refused: nobody passes by a request that Ratekeeper does not understand.

local TIMEOUT_MS = 250
-- What belongs to the connection, or is said below.
local LEFT_OUT = {
    ["connection"] = true, ["content-length"] = true, ["host"] = true, ["keep-alive"] = true, ["transfer-encoding"] = true,
    ["upgrade"] = true, ["expect"] = true, ["te"] = true, ["trailer"] = true,
    ["x-forwarded-for"] = true, ["x-forwarded-host"] = true, ["x-forwarded-method"] = true, ["x-forwarded-uri"] = true,
    ["x-forwarded-content-length"] = true, ["x-forwarded-transfer-encoding"] = true,
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
    -- The body stays here; that there is one is told.
    for _, name in ipairs({ "host", "content-length", "transfer-encoding" }) do
        if sent[name] then
            fields["x-forwarded-" .. name] = { sent[name][0] }
        end
    end
    return fields
end

local function field(response, name)
    local lines = response.headers and response.headers[name]
    return lines and (lines[0] or lines[1])
end

-- HAProxy makes a 502, 503 or 504 of its own where nobody answers. Ratekeeper's have one of these fields.
local function is_away(response)
    local status = response and response.status or 0
    if status == 502 or status == 503 or status == 504 then
        return not field(response, "retry-after") and not field(response, "x-ratekeeper-status")
    end
    return status == 0
end

local function answer(txn, status, response)
    local reply = txn:reply({ status = status })
    for _, name in ipairs(response and HANDED_ON or {}) do
        local value = field(response, name)
        if value then
            reply:add_header(name, value)
        end
    end
    reply:set_body(response and response.body or "")
    txn:done(reply)
end

core.register_action("ratekeeper", { "http-req" }, function(txn, url)
    local could_ask, response = pcall(function()
        return core.httpclient():get({ url = url, headers = asked(txn), timeout = TIMEOUT_MS })
    end)
    if not could_ask then
        core.Warning("ratekeeper: cannot ask: " .. tostring(response))
        return answer(txn, 500)
    end
    if is_away(response) then
        core.Warning("ratekeeper: away")
    elseif response.status == 200 then
        for variable, name in pairs({ ["txn.ratelimit"] = "ratelimit", ["txn.ratelimit_policy"] = "ratelimit-policy" }) do
            local value = field(response, name)
            if value then
                txn:set_var(variable, value)
            end
        end
    elseif response.status == 429 or response.status == 503 then
        answer(txn, response.status, response)
    else
        core.Warning("ratekeeper: no decision, status " .. tostring(response.status))
        -- More fields than Ratekeeper takes are the client's mistake; anything else is in the configuration.
        answer(txn, response.status == 431 and 431 or 500)
    end
end, 1)
