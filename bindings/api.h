// What libfrostline.so exports.
#pragma once

#define FROSTLINE_API __attribute__((visibility("default")))
