//! Rows as JSON Lines, for those who ship logs.

use serde_json::{Map, Value as Json};

use crate::identity::{Identity, iso};
use crate::table::{AnyTable, ColumnValue};

/// Hands over each row of a table as a line.
pub(crate) fn lines<E>(
    table: &AnyTable,
    identity: &Identity,
    line: &mut dyn FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    for (row, values) in table.rows().iter() {
        let mut object = Map::new();
        let mut set = |name: &str, value: Json| object.insert(name.to_owned(), value);
        set("table", table.name.into());
        set("recording", identity.recording().into());
        set("line", row.into());
        set("host", identity.host().into());
        set("service", identity.service().into());
        set("release", identity.release().into());
        for (column, value) in table.columns.iter().zip(values) {
            set(column.name, json(value));
        }
        line(&Json::Object(object).to_string())?;
    }
    Ok(())
}

fn json(value: &ColumnValue) -> Json {
    match value {
        ColumnValue::Null => Json::Null,
        ColumnValue::Text(text) => text.as_str().into(),
        ColumnValue::Integer(number) => (*number).into(),
        ColumnValue::Boolean(yes) => (*yes).into(),
        ColumnValue::Number(number) => (*number).into(),
        ColumnValue::Time(us) => iso(*us).into(),
    }
}
