-- Dissects frames of Flowkeep's channels: on Ethernet (EtherType 0x88b5) and in Geneve (UDP port 6081).
--
--   wireshark -X lua_script:tools/wireshark/flowkeep.lua capture.pcap
--   tshark -X lua_script:tools/wireshark/flowkeep.lua -r capture.pcap -Y flowkeep.kind==2 -T fields -e flowkeep.sequence
--
-- Or copy it into Wireshark's folder for personal Lua plugins (Help, About, Folders). Where Wireshark runs as root and says that it
-- loads no scripts, set run_user_scripts_when_superuser = true in its init.lua (Debian does).
--
-- The format is in docs/wire-format.md. A tag is shown, not checked, and what is encrypted stays so: the keys are the workers', and those of a
-- session cannot be made from the cluster's key without both ends' salts. Heads can be read always.

local flowkeep = Proto("flowkeep", "Flowkeep channel")

local kinds = { [1] = "hello", [2] = "messages", [3] = "acknowledgement", [4] = "packet" }

local f = flowkeep.fields
f.version = ProtoField.uint8("flowkeep.version", "Version")
f.kind = ProtoField.uint8("flowkeep.kind", "Kind", base.DEC, kinds)
f.flags = ProtoField.uint8("flowkeep.flags", "Flags", base.HEX)
f.tagged = ProtoField.bool("flowkeep.flags.tagged", "Tagged", 8, nil, 0x01)
f.keyed = ProtoField.bool("flowkeep.flags.keyed", "With a secret key", 8, nil, 0x02)
f.ask = ProtoField.bool("flowkeep.flags.ask", "Answer at once", 8, nil, 0x04)
f.again = ProtoField.bool("flowkeep.flags.again", "Sent before", 8, nil, 0x08)
f.key = ProtoField.uint8("flowkeep.key", "Key")
f.from = ProtoField.uint16("flowkeep.from", "From worker")
f.to = ProtoField.uint16("flowkeep.to", "To worker")
f.from_incarnation = ProtoField.uint64("flowkeep.from_incarnation", "From incarnation")
f.to_incarnation = ProtoField.uint64("flowkeep.to_incarnation", "To incarnation")
f.number = ProtoField.uint64("flowkeep.number", "Number")
f.sequence = ProtoField.uint64("flowkeep.sequence", "Sequence")
f.acknowledged = ProtoField.uint64("flowkeep.acknowledged", "Acknowledged")
f.seen = ProtoField.uint64("flowkeep.seen", "Seen")
f.agreed = ProtoField.uint64("flowkeep.agreed", "What both ends must have alike", base.HEX)
f.window = ProtoField.uint16("flowkeep.window", "Window")
f.length = ProtoField.uint16("flowkeep.length", "Length of the payload")
f.words = ProtoField.uint8("flowkeep.words", "Words of what arrived")
f.arrived = ProtoField.uint64("flowkeep.arrived", "Arrived", base.HEX)
f.record_first = ProtoField.bool("flowkeep.record.first", "A message begins", 16, nil, 0x8000)
f.record_last = ProtoField.bool("flowkeep.record.last", "It ends", 16, nil, 0x4000)
f.record_length = ProtoField.uint16("flowkeep.record.length", "Length", base.DEC, nil, 0x3fff)
f.record_bytes = ProtoField.bytes("flowkeep.record.bytes", "Bytes")
f.salt = ProtoField.bytes("flowkeep.salt", "Salt")
f.encrypted = ProtoField.bytes("flowkeep.encrypted", "Encrypted")
f.tag = ProtoField.bytes("flowkeep.tag", "Tag")

local whats = { [1] = "packet", [2] = "message between workers" }
local links = { [0] = "loopback", [1] = "Ethernet", [101] = "raw", [113] = "cooked 1", [200] = "cooked 2" }
local sides = { [0] = "inside", [1] = "outside" }

f.what = ProtoField.uint8("flowkeep.what", "What", base.DEC, whats)
f.p_link = ProtoField.uint8("flowkeep.packet.link", "Link type", base.DEC, links)
f.p_side = ProtoField.uint8("flowkeep.packet.side", "From", base.DEC, sides, 0x01)
f.p_exit = ProtoField.uint8("flowkeep.packet.exit", "Leaves to", base.DEC, sides, 0x02)
f.p_copy = ProtoField.bool("flowkeep.packet.copy", "Copy that a function held", 8, nil, 0x04)
f.p_flags = ProtoField.uint8("flowkeep.packet.flags", "Flags", base.HEX)
f.p_parsed = ProtoField.bool("flowkeep.packet.flags.parsed", "Parsed", 8, nil, 0x01)
f.p_inside_to_inside = ProtoField.bool("flowkeep.packet.flags.inside_to_inside", "Both ends inside", 8, nil, 0x02)
f.p_hairpin = ProtoField.bool("flowkeep.packet.flags.hairpin", "Hairpin", 8, nil, 0x04)
f.p_followed = ProtoField.bool("flowkeep.packet.flags.followed", "Followed fragment", 8, nil, 0x08)
f.p_icmp_error = ProtoField.bool("flowkeep.packet.flags.icmp_error", "ICMP error", 8, nil, 0x10)
f.p_icmp_query = ProtoField.bool("flowkeep.packet.flags.icmp_query", "ICMP query", 8, nil, 0x20)
f.p_watched = ProtoField.uint8("flowkeep.packet.flags.watched", "Watched", base.DEC, nil, 0xc0)
f.p_port = ProtoField.uint8("flowkeep.packet.port", "Came in at port")
f.p_egress = ProtoField.uint8("flowkeep.packet.egress", "Leaves by port, plus one")
f.p_hairpins = ProtoField.uint8("flowkeep.packet.hairpins", "Hairpins")
f.p_protocol = ProtoField.uint8("flowkeep.packet.protocol", "Protocol of a followed fragment")
f.p_wire_length = ProtoField.uint32("flowkeep.packet.wire_length", "Length on the wire")
f.p_source_port = ProtoField.uint16("flowkeep.packet.source_port", "Source port of a followed fragment")
f.p_destination_port = ProtoField.uint16("flowkeep.packet.destination_port", "Destination port of a followed fragment")
f.p_hash = ProtoField.uint64("flowkeep.packet.hash", "Hash of its group", base.HEX)
f.p_time = ProtoField.uint64("flowkeep.packet.time", "Time of reception")

local malformed = ProtoExpert.new("flowkeep.malformed", "Not as long as it says", expert.group.MALFORMED, expert.severity.ERROR)
flowkeep.experts = { malformed }

local HEAD, TAG, SALT, PACKET_HEAD = 64, 16, 16, 32
local HELLO, MESSAGES, ACKNOWLEDGEMENT, PACKET = 1, 2, 3, 4

-- What a message is: a packet behind what is known of it, or what a worker says to another. The frame is shown if all of it is here.
local function message(range, is_whole, tree, pinfo, root)
    tree:add(f.what, range(0, 1))
    if range(0, 1):uint() ~= 1 or range:len() < PACKET_HEAD then
        return
    end
    tree:add(f.p_link, range(1, 1))
    tree:add(f.p_side, range(2, 1))
    tree:add(f.p_exit, range(2, 1))
    tree:add(f.p_copy, range(2, 1))
    local bits = tree:add(f.p_flags, range(3, 1))
    for _, bit in ipairs({ f.p_parsed, f.p_inside_to_inside, f.p_hairpin, f.p_followed, f.p_icmp_error, f.p_icmp_query, f.p_watched }) do
        bits:add(bit, range(3, 1))
    end
    tree:add(f.p_port, range(4, 1))
    tree:add(f.p_egress, range(5, 1))
    tree:add(f.p_hairpins, range(6, 1))
    tree:add(f.p_protocol, range(7, 1))
    tree:add(f.p_wire_length, range(8, 4))
    tree:add(f.p_source_port, range(12, 2))
    tree:add(f.p_destination_port, range(14, 2))
    tree:add(f.p_hash, range(16, 8))
    tree:add(f.p_time, range(24, 8))
    local dissectors = { [1] = "eth_withoutfcs", [101] = "ip" }
    local name = dissectors[range(1, 1):uint()]
    if is_whole and name and range:len() > PACKET_HEAD then
        Dissector.get(name):call(range(PACKET_HEAD):tvb(), pinfo, root)
    end
end

local function records(range, tree, pinfo, root)
    local at, count = 0, 0
    while at + 2 <= range:len() do
        local length = range(at, 2):uint() % 0x4000
        if at + 2 + length > range:len() then
            tree:add_proto_expert_info(malformed)
            break
        end
        local record = tree:add(range(at, 2 + length), "Record of " .. length .. " bytes")
        record:add(f.record_first, range(at, 2))
        record:add(f.record_last, range(at, 2))
        record:add(f.record_length, range(at, 2))
        if length > 0 then
            record:add(f.record_bytes, range(at + 2, length))
            local bits = math.floor(range(at, 2):uint() / 0x4000)
            if bits >= 2 then
                message(range(at + 2, length), bits == 3, record, pinfo, root)
            end
        end
        at = at + 2 + length
        count = count + 1
    end
    return count
end

function flowkeep.dissector(buffer, pinfo, root)
    if buffer:len() < HEAD then
        return 0
    end
    pinfo.cols.protocol = "Flowkeep"
    local tree = root:add(flowkeep, buffer())
    local kind, flags = buffer(1, 1):uint(), buffer(2, 1):uint()
    tree:add(f.version, buffer(0, 1))
    tree:add(f.kind, buffer(1, 1))
    local bits = tree:add(f.flags, buffer(2, 1))
    bits:add(f.tagged, buffer(2, 1))
    bits:add(f.keyed, buffer(2, 1))
    bits:add(f.ask, buffer(2, 1))
    bits:add(f.again, buffer(2, 1))
    tree:add(f.key, buffer(3, 1))
    tree:add(f.from, buffer(4, 2))
    tree:add(f.to, buffer(6, 2))
    tree:add(f.from_incarnation, buffer(8, 8))
    tree:add(f.to_incarnation, buffer(16, 8))
    tree:add(f.number, buffer(24, 8))
    if kind == HELLO then
        for at = 32, 48, 8 do
            tree:add(f.agreed, buffer(at, 8))
        end
    else
        tree:add(f.sequence, buffer(32, 8))
        tree:add(f.acknowledged, buffer(40, 8))
        tree:add(f.seen, buffer(48, 8))
    end
    tree:add(f.window, buffer(56, 2))
    tree:add(f.length, buffer(58, 2))
    tree:add(f.words, buffer(60, 1))

    local length, words = buffer(58, 2):uint(), buffer(60, 1):uint()
    local tag = flags % 2 == 1 and TAG or 0
    local start = HEAD + 8 * words
    if buffer:len() ~= start + length + tag then
        tree:add_proto_expert_info(malformed)
        return buffer:len()
    end
    for word = 0, words - 1 do
        tree:add(kind == HELLO and f.agreed or f.arrived, buffer(HEAD + 8 * word, 8))
    end
    local from, to = buffer(4, 2):uint(), buffer(6, 2):uint()
    local what = string.format("%d to %d: %s", from, to, kinds[kind] or "kind " .. kind)
    local is_encrypted = kind ~= HELLO and length > 0 and math.floor(flags / 2) % 2 == 1
    if kind == HELLO and length == 2 * SALT then
        tree:add(f.salt, buffer(start, SALT))
        tree:add(f.salt, buffer(start + SALT, SALT))
    end
    if is_encrypted then
        tree:add(f.encrypted, buffer(start, length))
        what = what .. ", encrypted"
    end
    if kind == MESSAGES and is_encrypted then
        what = what .. string.format(", sequence %s", tostring(buffer(32, 8):uint64()))
    elseif kind == MESSAGES and length > 0 then
        local count = records(buffer(start, length), tree, pinfo, root)
        what = what .. string.format(" %s, %d records", tostring(buffer(32, 8):uint64()), count)
    end
    if kind == MESSAGES or kind == ACKNOWLEDGEMENT then
        what = what .. string.format(", acknowledges %s", tostring(buffer(40, 8):uint64()))
    end
    if tag > 0 then
        tree:add(f.tag, buffer(start + length, tag))
    end
    pinfo.cols.info = what
    if kind == PACKET and length > 0 and not is_encrypted then
        Dissector.get("eth_withoutfcs"):call(buffer(start, length):tvb(), pinfo, root)
        pinfo.cols.info:prepend(what .. " | ")
    end
    return buffer:len()
end

DissectorTable.get("ethertype"):add(0x88b5, flowkeep)
