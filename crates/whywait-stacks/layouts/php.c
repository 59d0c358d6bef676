/* Prints where a PHP keeps what src/php reads, from its own headers: see the script `php`. */
#include "main/php.h"
#include "Zend/zend_modules.h"
#include "Zend/zend_vm.h"
#include <stdio.h>

#define PLACE(name, type, member) printf(#name ": %zu,\n", offsetof(type, member))
#define SIZE(name, type) printf(#name ": %zu,\n", sizeof(type))

int main(void) {
    printf("(%d, PhpLayout {\n", ZEND_MODULE_API_NO);
    PLACE(current, zend_executor_globals, current_execute_data);
    PLACE(functions, zend_executor_globals, function_table);
    PLACE(classes, zend_executor_globals, class_table);
    PLACE(instruction, zend_execute_data, opline);
    PLACE(function, zend_execute_data, func);
    PLACE(call_info, zend_execute_data, This.u1.type_info);
    PLACE(previous, zend_execute_data, prev_execute_data);
    PLACE(kind, zend_function, type);
    PLACE(flags, zend_function, common.fn_flags);
    PLACE(name, zend_function, common.function_name);
    PLACE(class, zend_function, common.scope);
    PLACE(code, zend_op_array, opcodes);
    PLACE(code_count, zend_op_array, last);
    PLACE(file, zend_op_array, filename);
    PLACE(first_line, zend_op_array, line_start);
    SIZE(instruction_bytes, zend_op);
    PLACE(line, zend_op, lineno);
    PLACE(class_name, zend_class_entry, name);
    PLACE(class_flags, zend_class_entry, ce_flags);
    PLACE(class_functions, zend_class_entry, function_table);
    PLACE(string_length, zend_string, len);
    PLACE(string_bytes, zend_string, val);
    PLACE(table_items, zend_array, arData);
    PLACE(table_used, zend_array, nNumUsed);
    PLACE(table_size, zend_array, nTableSize);
    SIZE(item_bytes, Bucket);
    PLACE(item_value, Bucket, val);
    PLACE(item_type, Bucket, val.u1.type_info);
    PLACE(module_version, zend_module_entry, zend_api);
    PLACE(module_zts, zend_module_entry, zts);
    printf("top: %#x,\n", ZEND_CALL_TOP);
    printf("pointer: %d,\n", IS_PTR);
    printf("immutable: %#x,\n", ZEND_ACC_IMMUTABLE);
    printf("of_trait: %#x,\n", ZEND_ACC_TRAIT_CLONE);
    printf("is_trait: %#x,\n", ZEND_ACC_TRAIT);
    printf("}),\n");
    return 0;
}
