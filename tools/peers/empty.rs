// Cargo wants a target; the peers are built from the dependencies' sources by `tools/peers/build`.
