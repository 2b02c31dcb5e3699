# Finds the folder of the CUDA driver API's header, cuda.h. Nothing links against CUDA: the driver
# is resolved at run time, so a toolkit's headers are all that a build needs.
#
# Searched in this order: FROSTLINE_CUDA_INCLUDE, $CUDA_HOME, $CUDA_PATH, the toolkit of the nvcc on
# PATH, and whatever CMake's FindCUDAToolkit knows. Defines the target Frostline::CudaHeaders.
#
# /usr/include/linux/cuda.h (a disk controller of 1990s Macintoshes) has the same name, and a
# toolkit may be too old; so a candidate counts only if it defines a recent enough CUDA_VERSION.

set(FROSTLINE_CUDA_INCLUDE "" CACHE PATH "Folder of the CUDA toolkit's cuda.h; empty: search")
set(CudaHeaders_MINIMUM 12000)

function(cuda_headers_version folder result)
    set(${result} 0 PARENT_SCOPE)
    if(EXISTS "${folder}/cuda.h")
        file(STRINGS "${folder}/cuda.h" line LIMIT_COUNT 1
             REGEX "^#define[ \t]+CUDA_VERSION[ \t]+[0-9]+")
        if(line MATCHES "CUDA_VERSION[ \t]+([0-9]+)")
            set(${result} ${CMAKE_MATCH_1} PARENT_SCOPE)
        endif()
    endif()
endfunction()

# nvcc may be a wrapper script or a link, so its own path tells nothing. A dry run makes it print
# where its toolkit lies (TOP=) and which folders it passes to the compiler (INCLUDES=), and
# compiles nothing.
function(cuda_headers_of_nvcc result)
    set(${result} "" PARENT_SCOPE)
    find_program(CudaHeaders_NVCC nvcc)
    mark_as_advanced(CudaHeaders_NVCC)
    if(NOT CudaHeaders_NVCC)
        return()
    endif()
    execute_process(COMMAND ${CudaHeaders_NVCC} --dryrun -x cu /dev/null
                    OUTPUT_VARIABLE said ERROR_VARIABLE said TIMEOUT 30)
    set(folders "")
    if(said MATCHES "#[$] TOP=([^\r\n]+)")
        string(STRIP "${CMAKE_MATCH_1}" top)
        file(GLOB targets "${top}/targets/*/include")
        list(APPEND folders "${top}/include" ${targets})
    endif()
    if(said MATCHES "#[$] INCLUDES=([^\r\n]+)")
        string(REGEX MATCHALL "-I[^\" ]+" flags "${CMAKE_MATCH_1}")
        list(TRANSFORM flags REPLACE "^-I" "" OUTPUT_VARIABLE flags)
        list(APPEND folders ${flags})
    endif()
    set(${result} "${folders}" PARENT_SCOPE)
endfunction()

function(cuda_headers_choose)
    foreach(folder IN LISTS ARGN)
        cuda_headers_version("${folder}" version)
        if(version GREATER_EQUAL CudaHeaders_MINIMUM)
            get_filename_component(folder "${folder}" REALPATH)
            set(CudaHeaders_INCLUDE_DIR "${folder}" PARENT_SCOPE)
            set(CudaHeaders_VERSION ${version} PARENT_SCOPE)
            return()
        endif()
    endforeach()
endfunction()

unset(CudaHeaders_INCLUDE_DIR)
if(FROSTLINE_CUDA_INCLUDE)
    # Named by the user: use it or say that it is wrong, but never silently take another.
    cuda_headers_choose("${FROSTLINE_CUDA_INCLUDE}")
else()
    foreach(root IN ITEMS "$ENV{CUDA_HOME}" "$ENV{CUDA_PATH}")
        if(root AND NOT CudaHeaders_INCLUDE_DIR)
            file(GLOB folders "${root}/targets/*/include")
            cuda_headers_choose("${root}/include" ${folders})
        endif()
    endforeach()
    if(NOT CudaHeaders_INCLUDE_DIR)
        cuda_headers_of_nvcc(folders)
        cuda_headers_choose(${folders})
    endif()
    if(NOT CudaHeaders_INCLUDE_DIR)
        find_package(CUDAToolkit QUIET)
        cuda_headers_choose(${CUDAToolkit_INCLUDE_DIRS})
    endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CudaHeaders
    REQUIRED_VARS CudaHeaders_INCLUDE_DIR VERSION_VAR CudaHeaders_VERSION
    REASON_FAILURE_MESSAGE "no cuda.h of CUDA ${CudaHeaders_MINIMUM} or newer (set \
FROSTLINE_CUDA_INCLUDE to the folder that holds one)")

if(CudaHeaders_FOUND AND NOT TARGET Frostline::CudaHeaders)
    add_library(Frostline::CudaHeaders INTERFACE IMPORTED)
    target_include_directories(Frostline::CudaHeaders INTERFACE "${CudaHeaders_INCLUDE_DIR}")
endif()
